"""Tasks: examples, encoding, head, loss and score, one a file. `data/` reads and encodes.

To add one: `tasks/<name>.py` and `conf/task/<name>.yaml`; `text.py`, `pairs.py` and
`classification.py` hold what several tasks share.
"""
