"""Measures of a point cloud, `[N, D] -> scalar`, one a file, all in float64.

To add one: a function in `metrics/<name>.py` and `conf/metric/<name>.yaml`. Arguments beside the
embeddings (`labels`, `groups`, `reference`, `positives`) are named in its signature. `suite.py`
calls them; `streaming.py` computes those of moments over batches.
"""
