"""Files that ask for several runs: studies, searches and the values of `sweep=NAME`."""

import re

import pytest
import yaml

from isotrain.config.shipped import NAME, check_sweep, names, read, shipped, with_sweeps
from isotrain.runs.stored import PlanError
from isotrain.studies.definition import load_study
from isotrain.studies.search import load_search

LOAD = {"study": (load_study, PlanError), "tune": (load_search, PlanError)}


@pytest.mark.parametrize("group", ["study", "tune", "sweep"])
def test_every_file_of_a_group_is_listed_and_read(group):
    files = sorted(file.name for file in shipped(group).iterdir())
    assert [f"{name}.yaml" for name in names(group)] == files
    assert all(re.fullmatch(NAME, name) for name in names(group))
    assert all(isinstance(read(group, name), dict) for name in names(group))


@pytest.mark.parametrize("group", LOAD)
def test_a_file_that_cannot_be_read_is_told_in_one_sentence(group, tmp_path):
    load, error = LOAD[group]
    noun = {"study": "study", "tune": "search"}[group]
    cases = {
        "smoek": f"there is no {noun} smoek; ",
        "a/smoke": f"there is no {noun} a/smoke; ",
        str(tmp_path / "smok.yaml"): r"there is no file .*smok.yaml; ",
        str(tmp_path): "there is no ",
        "folder.yaml": "there is no file",
        "bytes.yaml": "bytes.yaml cannot be read: 'utf-8' codec",
        "broken.yaml": "broken.yaml cannot be read: ",
        "number.yaml": "number.yaml cannot be read: ",
    }
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "number.yaml").write_text("3")
    for given, said in cases.items():
        path = tmp_path / given
        with pytest.raises(error, match=said.replace("?", r"\?")):
            load(str(path) if path.exists() else given)


def test_a_path_that_leads_nowhere_is_told_as_such_without_the_shipped_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"no file far/from\.yaml; check the path") as told:
        read("study", "far/from.yaml")
    assert str(tmp_path) in str(told.value)
    assert "smoke" not in str(told.value)
    (tmp_path / "mine.yaml").write_text("a: 1")
    with pytest.raises(ValueError, match=r"no file mien.yaml; did you mean mine.yaml\?"):
        read("study", "mien.yaml")


# `sweep=NAME`


@pytest.fixture
def own(own_files):
    """`own(name, content)`: the folder of configurations with such a sweep file."""
    return lambda name, content: own_files(f"sweep/{name}", yaml.safe_dump(content))


def test_two_files_are_crossed_and_the_line_comes_first(own):
    own("rates", {"optimizer.lr": [1e-5, 2e-5], "seed": "range(3)"})
    folder = own("sizes", {"data.batch_size": [16], "seed": [7]})
    given = ["sweep=[rates,sizes]", "optimizer.lr=1e-4"]
    found = with_sweeps(given, True, folder)
    assert found == ["seed=7", "data.batch_size=16", "optimizer.lr=1e-4"]


@pytest.mark.parametrize(
    ("line", "multirun", "why"),
    [
        ("sweep=seeds", False, "add -m to start them"),
        ("sweep=[seeds", True, "cannot be read"),
        ("sweep=seeds,rates", True, "must be one name"),
        ("sweep=sedes", True, "did you mean seeds?"),
        ("sweep=empty", True, "must map keys to lists of values"),
        ("sweep=listed", True, "must map keys to lists of values"),
        ("sweep=single", True, "gives seed the value 3; give a list such as [3]"),
        ("sweep=none", True, "gives seed the value []"),
        ("sweep=deep", True, "sweep=deep: "),
    ],
)
def test_what_is_no_sweep_is_refused_by_name(own, line, multirun, why):
    own("empty", {})
    own("listed", [1, 2])
    own("single", {"seed": 3})
    own("none", {"seed": []})
    folder = own("deep", {"seed": [{"a": object.__name__, "b": b"\x00"}]})
    with pytest.raises(ValueError, match=r"sweep=") as told:
        with_sweeps([line], multirun, folder)
    assert why in str(told.value)
    _jobs, rest, mistakes = check_sweep([line, "task=wic"], folder, multirun)
    assert rest == ["task=wic"]
    assert mistakes[0] == str(told.value)
