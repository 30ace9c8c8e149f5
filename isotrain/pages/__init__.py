"""HTML pages of runs, studies and analyses; W&B's pictures; the terminal summary of a run.

A page is a template (`run.html`, `study.html`, `analysis.html`) that `page.py` fills. The sentences
are there, the numbers come from `isotrain.results`. Charts are Vega-Lite specifications:
`charts.py` has what they share, `run_charts.py`, `study_charts.py` and `maps.py` the charts.
"""
