"""What the tests of the check share: a plain environment, packages and files of a user."""

import copy
import itertools
import sys
import textwrap

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl

from tests.test_bad_inputs import UNSET

NUMBERS = itertools.count()
COMPOSED = {}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """An environment that says nothing about data, hub or packages."""
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module", autouse=True)
def compositions_are_made_once():
    """Hydra's part of a check takes a tenth of a second, and there are a thousand of them."""
    load = ConfigLoaderImpl.load_configuration

    def load_once(self, config_name, overrides, run_mode, **others):
        path = [(item.provider, item.path) for item in self.config_search_path.get_path()]
        key = repr((path, config_name, list(overrides), run_mode, others))
        if key not in COMPOSED:
            COMPOSED[key] = load(self, config_name, overrides, run_mode, **others)
        return copy.deepcopy(COMPOSED[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfigLoaderImpl, "load_configuration", load_once)
        yield


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
