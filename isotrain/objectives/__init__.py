"""Losses added to the task loss, one per file: isotropy regularisers, contrastive, ranking.

To add one: `objectives/<name>.py`, `conf/objective/<name>.yaml`, a test against its formula.

Every loss raises a ValueError for embeddings that are not `[N, D]` or too few, and for clouds or
labels of another size. A class raises one for invalid arguments. A docstring has further
conditions.
"""
