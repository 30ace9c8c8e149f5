"""The isotropy monitor.

`callback.py` decides when to measure, `sampling.py` which embeddings, `measurement.py` computes
the metrics, `snapshot_arrays.py` the stored spectra and maps.
"""
