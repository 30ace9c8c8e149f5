"""Commands: `plans.py` (run, status, report, cancel), `evaluate.py`; a run itself: `worker.py`."""
