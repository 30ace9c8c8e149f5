"""Structure that linear probes read from each layer. Start at `analysis.py`."""
