"""Luo 2020: outlier dimensions, their origin, and clipping. Start at `analysis.py`."""
