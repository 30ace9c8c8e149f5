"""Data of tasks: sources (hub, local, demo), encoding, the token cache, perturbations.

To add a source: a class with `missing`, `revision_of` and `read`, and `conf/source/<name>.yaml`.
"""
