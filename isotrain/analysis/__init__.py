"""Published analyses of the field, repeated for any encoder: one folder each, shared code.

`run.py` runs the parts of an analysis and stores their records, `outputs.py` writes tables and
figures. To add one: a folder with an analysis class, and `conf/analysis/<name>.yaml`.
"""
