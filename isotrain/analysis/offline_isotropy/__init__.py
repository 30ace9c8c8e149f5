"""Rajaei and Sheikhi 2020: isotropy transforms of frozen vectors. Start at `analysis.py`."""
