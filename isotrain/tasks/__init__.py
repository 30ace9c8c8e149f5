"""Tasks: examples, encoding, head, loss and score. `data/` reads and encodes.

To add one of texts with a class or a score: `conf/task/<name>.yaml` alone, on `classification` or
`regression`. Another kind of task: `tasks/<name>.py` as well, with a class that inherits from
`Task`, `TextTask`, `Classification`, `Regression` or `Contrastive`.
"""
