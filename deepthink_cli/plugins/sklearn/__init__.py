"""scikit-learn's classifier."""
