"""Tasks: examples, encoding, head, loss and score, one a file. `data/` reads and encodes.

To add one: `tasks/<name>.py` and `conf/task/<name>.yaml`; `pairs.py` and `contrastive.py` hold
what several tasks share.
"""
