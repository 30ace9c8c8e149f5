"""Training: the Lightning module with its data, optimizer, callbacks, monitor and loggers.

`module.py` is the training step, `data.py` the batches, `freezing_schedule.py` applies freezing
schedules, `extra_losses.py` computes the objectives of a step. `parts.py` instantiates parts,
`requirements.py` checks required files, packages and classes, `checks.py` checks parts and data.
`memory.py` recognises that memory is full.
"""
