"""Plans of jobs for the pool: studies, searches and sweeps.

A study: `definition.py`, `plan.py`, `identity.py`, `results.py`. A search: `search.py`, `space.py`,
`search_plan.py`, `trials.py`, `search_run.py`, `search_status.py`, `confirm.py`. A sweep of
`train -m`: `sweep.py`. All: `status.py`.
"""
