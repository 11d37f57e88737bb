"""Ablations of the paper's update: rules, and studies of them."""

from __future__ import annotations

from pathlib import Path

STUDIES = Path(__file__).parent / "studies"
