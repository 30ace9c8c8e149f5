"""A Slurm of two nodes for the tests of this folder, or why they are left out."""

import os

import pytest

from tests.cluster import two_nodes

NEEDED = "ISOTRAIN_NEEDS_CLUSTER"  # set: tests fail where Slurm is missing
PORT = "ISOTRAIN_SLURM_PORT"


@pytest.fixture(scope="session")
def slurm_conf(tmp_path_factory):
    """`SLURM_CONF` of a Slurm that lasts as long as the tests."""
    if why := two_nodes.missing():
        (pytest.fail if os.environ.get(NEEDED) else pytest.skip)(why)
    folder = tmp_path_factory.mktemp("slurm")
    conf = two_nodes.start(folder, int(os.environ.get(PORT, "17100")))
    yield conf
    two_nodes.stop(folder)


@pytest.fixture(scope="session")
def slurm(slurm_conf):
    """The environment of the commands of that Slurm."""
    return {"SLURM_CONF": str(slurm_conf)}
