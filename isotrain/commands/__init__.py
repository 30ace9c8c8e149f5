"""Commands: `train.py` (and demo), `plans.py` (run, status, report, cancel), `evaluate.py`.

`shown.py` is what status and report show, `worker.py` a run in this process.
"""
