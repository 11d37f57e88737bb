"""What is measured on predictions: accuracy, probabilities, and what thinking changed; labels and counts, no models."""
