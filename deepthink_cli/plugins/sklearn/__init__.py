"""scikit-learn's classifier, and frames of pandas."""
