"""Linear probes on every frozen layer, and the layer's isotropy. Start at `analysis.py`."""
