"""Sweeps, studies and searches: `call.py` plans the runs of a call, and launches what is missing.

A study: `definition.py`, `record.py`, `status.py`, and `slurm.py` of its jobs there; a sweep is one
without a file. A search: `search.py`, `space.py`, `trials.py`, `confirm.py`.
"""
