"""Plans of jobs for the pool: studies, searches and sweeps.

A study: `definition.py`, `grid.py`, `plan.py`, `identity.py`, `history.py`, `results.py`. A search:
`search.py`, `space.py`, `search_plan.py`, `trials.py`, `search_run.py`,
`confirm.py`. A sweep of `train -m`:
`sweep.py`. All: `preview.py`, `status.py`, `search_status.py`.
"""
