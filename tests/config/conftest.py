"""What the tests of the check share: a plain environment, packages and files of a user."""

import itertools
import sys
import textwrap

import pytest

from tests.test_bad_inputs import UNSET

NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """An environment that says nothing about data, hub or packages."""
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """`package(text)`: the name of an importable module with that text, in a package of its own."""
    root = tmp_path / "site"
    root.mkdir()
    monkeypatch.syspath_prepend(str(root))
    made = []

    def write(text, init=""):
        name = f"a_users_package_{next(NUMBERS)}"  # sources are read once in a process
        (root / name).mkdir()
        (root / name / "__init__.py").write_text(init)
        (root / name / "parts.py").write_text(textwrap.dedent(text))
        made.append(name)
        return f"{name}.parts"

    yield write
    for name in [n for n in sys.modules if n.partition(".")[0] in made]:
        del sys.modules[name]


@pytest.fixture
def own_files(tmp_path):
    """`own_files(name, text)`: a configuration folder with that file, for `--config-dir`."""

    def write(name, text):
        file = tmp_path / "mine" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return str(tmp_path / "mine")

    return write
