"""Commands: `train.py` one run, `sweeps.py` what a sweeper runs, `plans.py` (run, status, report).

`evaluate.py` scores a run without training, `demo.py` compares two runs.
"""
