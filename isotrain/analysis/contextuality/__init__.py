"""Ethayarajh 2019: self-similarity, anisotropy and explained variance. Start at `analysis.py`."""
