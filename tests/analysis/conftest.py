"""What tests of analyses share: tiny encoders, data sets on disk, subjects."""

import pytest

from tests.analysis.annotated_rows import write_annotated
from tests.analysis.offline_isotropy.offline_rows import write_sets
from tests.analysis.runs import subject_on, tiny


@pytest.fixture(scope="session")
def sets(tmp_path_factory):
    """The folder of `write_sets`."""
    return write_sets(tmp_path_factory.mktemp("sets"))


@pytest.fixture(scope="session")
def data_dir(data_dir):
    """The folder for `source.root`, with sentences whose words are annotated."""
    return write_annotated(data_dir)


@pytest.fixture(scope="session")
def encoder():
    """A random BERT that no test changes."""
    return tiny()


@pytest.fixture
def subject_of(tmp_path):
    """`subject_of(encoder, source, batch_size=…, …)`: rows go to a folder of the test."""

    def build(encoder, source=None, **changes):
        return subject_on(encoder, source, tmp_path / "rows", batch_size=4)._replace(**changes)

    return build
