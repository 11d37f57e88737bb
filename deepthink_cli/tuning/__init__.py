"""How a method is chosen with labelled rows alone: folds, nested cross-validation and the test of its result."""
