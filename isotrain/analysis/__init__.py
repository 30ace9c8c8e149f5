"""The published analyses of the field, re-run for any encoder: one folder each, one shared road.

`run.py` runs the parts of an analysis and stores their records, `outputs.py` writes tables and
figures. To add one: a folder with an analysis class, and `conf/analysis/<name>.yaml`.
"""
