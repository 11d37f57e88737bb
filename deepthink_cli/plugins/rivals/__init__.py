"""Classifiers without in-context learning, which `tune` judges by the same folds."""
