"""Training: the Lightning module and its data, freezing, optimizer, checks; three folders beside.

`module.py` is the training step, `data.py` the batches, `freezing.py` what trains when,
`extra_losses.py` the objectives of a step, `requirements.py` the files, packages and classes that a
run needs, `checks.py` what only data and weights can tell, `parts.py` how a part is made.
`callbacks/`, `monitor/` and `loggers/` are what Lightning calls.
"""
