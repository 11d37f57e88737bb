"""Figures of studies, in the forms of the paper: their fields in a study file, and one file for each form."""
