"""The one seam to the network: how a model reads and scores."""
