"""One way to start many runs: `pool.py`; a process (`process.py`), its GPU (`devices.py`).

How far a run is (`progress.py`), what its folder holds (`stored.py`), and which run it is by its
record (`archive.py`). Another engine, such as a cluster's, is a `Backend` of `process.py`.
"""
