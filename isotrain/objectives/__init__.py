"""Losses added to the task loss, one per file: isotropy regularisers, contrastive, ranking.

To add one: `objectives/<name>.py`, `conf/objective/<name>.yaml`, a test against its formula.

Every loss raises a ValueError for embeddings that are not `[N, D]`, too few of them, and clouds or
labels of another size; a class for illegal numbers and names. A docstring names further conditions.
"""
