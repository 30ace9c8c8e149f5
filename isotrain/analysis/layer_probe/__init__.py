"""Linear probes on every frozen layer beside its isotropy. Start at `analysis.py`."""
