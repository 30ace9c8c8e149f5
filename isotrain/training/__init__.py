"""Training: the Lightning module with its data, optimizer, callbacks, monitor and loggers.

`module.py` is the training step, `data.py` the batches, `freezing_schedule.py` what trains when,
`extra_losses.py` the objectives of a step. `parts.py` makes a part, `requirements.py` looks for the
files, packages and classes that a run needs, `checks.py` compares parts with weights and data.
"""
