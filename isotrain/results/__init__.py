"""Numbers of finished runs: what `runs.py` reads, compared in `frame.py`, as markdown, LaTeX, csv.

Knows no page and no command. A run alone needs `series.py`, `readings.py`, `levels.py`,
`statistics.py`, `names.py` and `findings.py`.
"""
