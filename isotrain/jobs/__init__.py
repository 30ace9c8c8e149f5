"""One way to start many runs: `pool.py`; a process (`process.py`), its GPU (`devices.py`).

How far a run is (`progress.py`) and what its folder holds (`stored.py`). Another engine, such as a
cluster's, is a `Backend` of `process.py`.
"""
