"""What is known of a model without its weights."""
