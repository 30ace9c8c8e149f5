"""The isotropy monitor: which embeddings are kept, which metrics measure them, where values go.

`callback.py` decides when, `sampling.py` and `reservoir.py` which embeddings, `measurement.py` what
is computed, `snapshot_arrays.py` what is stored of spectra and maps.
"""
