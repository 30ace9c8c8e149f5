"""One way to start many runs: `pool.py`; a process (`process.py`), its GPU (`devices.py`).

How far a run is (`progress.py`), what folders hold (`stored.py`), and planned runs with their
records (`archive.py`). Another engine, such as a cluster's, is a `Backend` of `process.py`.
"""
