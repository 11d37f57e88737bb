"""Table 1 of the paper in one harness: ways of choosing demonstrations, each alone and followed by thinking."""
