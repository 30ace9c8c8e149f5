"""Measures of a point cloud, `[N, D] -> scalar`, one a file, all in float64.

To add one: a function in `metrics/<name>.py` and `conf/metric/<name>.yaml`, whose comments say how
it is read. Its signature names what it needs beside the embeddings: `labels` or `groups` `[N]`,
`reference` or `positives`. One whose first argument is annotated `Tensor | Cloud` shares moments
and spectra with the others. `suite.py` calls them; `streaming.py` those of moments over batches.
"""
