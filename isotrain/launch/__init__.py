"""Give a process its GPU (`devices.py`) and a run its ranks (`ranks.py`).

Hydra's launchers start the worker processes of a sweep, which end with it (`workers.py`). They
also start jobs in Slurm, which do not end with it (`slurm.py`).
"""
