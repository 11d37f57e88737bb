"""The choice of a method with labelled rows alone: folds, nested cross-validation and the test of its result."""
