"""The paper's figures, the forms of its tables, and reports in LaTeX."""
