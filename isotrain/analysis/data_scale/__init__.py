"""Arora et al. 2020: labelled data that contextual vectors save. Start at `analysis.py`."""
