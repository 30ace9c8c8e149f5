"""Losses added to the task loss, one per file: isotropy regularisers, contrastive, ranking.

To add one: `objectives/<name>.py`, `conf/objective/<name>.yaml`, a test against its formula.
"""
