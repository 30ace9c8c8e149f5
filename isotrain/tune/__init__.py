"""Searches over hyper-parameters with Optuna, confirmed by a study on fresh seeds."""
