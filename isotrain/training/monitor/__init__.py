"""The isotropy monitor.

`callback.py` decides when, `sampling.py` which embeddings, `measurement.py` what is computed of
them, `snapshot_arrays.py` what is stored of spectra and maps.
"""
