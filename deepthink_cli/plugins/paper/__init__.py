"""The paper's figures, and the forms of its tables."""
