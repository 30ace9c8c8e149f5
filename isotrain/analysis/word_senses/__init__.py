"""Word senses in embeddings, by layer. Start at `analysis.py`."""
