"""How a process gets what a run needs: its GPU (`devices.py`), its other ranks (`ranks.py`).

Hydra's launchers start the processes of a sweep, which end with it (`workers.py`), or its jobs in
Slurm, which do not (`slurm.py`); a run of several processes starts its ranks.
"""
