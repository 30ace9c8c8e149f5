"""Metrics of a point cloud, `[N, D] -> scalar`, one per file, all in float64.

To add one: a function in `metrics/<name>.py` and `conf/metric/<name>.yaml`, whose comments explain
how to read it. Its signature names any further input: `labels` or `groups` `[N]`, `reference` or
`positives`. If its first argument is annotated `Tensor | Cloud`, it shares moments and spectra
with the others. `suite.py` calls them.

Every metric raises a ValueError for an invalid `Cloud` (fewer than two embeddings, or one where
that is enough), and for labels or groups that do not fit `x`. A docstring has only further
conditions.
"""
