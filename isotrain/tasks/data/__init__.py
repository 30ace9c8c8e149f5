"""Data of tasks: sources (hub, local, demo), encoding, the token cache, perturbations.

To add a source: a subclass of `Source` (`sources.py`) and `conf/source/<name>.yaml`.
"""
