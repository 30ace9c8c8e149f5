"""Cai et al. 2021: clusters, manifolds, local dimension of every layer. Start at `analysis.py`."""
