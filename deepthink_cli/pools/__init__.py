"""Pools of labelled rows: what a model says of them, and the demonstrations that are chosen from them."""
