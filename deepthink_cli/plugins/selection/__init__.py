"""Selection methods that read the pool with a model."""
