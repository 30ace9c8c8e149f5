"""Commands: run, status, report, cancel (`plans.py`, `shown.py`), `evaluate.py`; `worker.py`."""
