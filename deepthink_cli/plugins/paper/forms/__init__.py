"""Figures of studies, in the forms of the paper: what a study file says of them, and one file for each form."""
