"""Results of finished runs: read by `runs.py`, compared by `frame.py`, as markdown, LaTeX, csv.

Independent of pages and commands. A single run needs only `series.py`, `readings.py`, `levels.py`,
`statistics.py`, `names.py` and `findings.py`.
"""
