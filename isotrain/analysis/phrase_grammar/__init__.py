"""Phrases in the distances of adjacent words, by layer. Start at `analysis.py`."""
