"""Run many jobs: a pool (`pool.py`), processes (`process.py`), their GPUs (`devices.py`).

How far a run is (`progress.py`), what folders hold (`stored.py`), and planned runs with their
records (`archive.py`). Another engine, such as a cluster's, is a `Backend` of `process.py`.
"""
