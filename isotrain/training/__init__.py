"""Training: the Lightning module with its data, optimizer, callbacks, monitor and loggers.

`module.py` is the training step, `data.py` the batches, `freezing_schedule.py` applies freezing
schedules, `losses.py` computes the objectives of a step. `rules.py` checks that the parts of a run
fit together, `revision.py` names what a run reads. `failures.py` recognises full memory and lost
ranks.
"""
