"""What attention heads look at. Start at `analysis.py`."""
