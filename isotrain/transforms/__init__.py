"""Isotropy layers `[N, D] -> [N, D]`, one per file.

To add one: `transforms/<name>.py` with the class in CamelCase, `conf/isotropy/<name>.yaml` with its
`_target_` and a comment per key, and a test. Statistics of training and frozen evaluation come
from `fitted.py`.

Every layer raises a ValueError for an illegal number or name, and for embeddings of another width.
A docstring names further conditions.
"""
