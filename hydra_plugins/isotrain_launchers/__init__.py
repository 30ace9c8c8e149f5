"""Launchers of isotrain, in place of Hydra's plug-ins of the same names: of Slurm and of Ray."""

from hydra_plugins.isotrain_launchers import ray, slurm


def register() -> None:
    """Make the launchers known to Hydra."""
    ray.register()
    slurm.register()
