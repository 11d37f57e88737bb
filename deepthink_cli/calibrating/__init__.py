"""Calibrations applied to the predictions of a memory: the inputs that they score, and the corrected predictions."""
