"""The tools that count: statements and lines of the project, and the roads through a run."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tools import road, size

MODULE = '''\
"""Docstring."""

def registered(function):
    return function

class Part:
    """Docstring."""

    width = 3
    """A string below an attribute."""

    @registered
    def step(self, x):
        """Docstring."""
        def inner(y):

            return y + 1

        return inner(inner(x))

    @property
    def size(self):
        return self.width

def unused():
    return 1

def work():
    part = Part()
    helped = [part.size for _ in range(2)]
    for _ in range(2):
        part.step(len(helped))
    (lambda: unused)()
'''


def test_statements_are_counted_without_docstrings():
    assert size.n_statements(MODULE.encode()) == 19  # the string below the attribute is one
    assert size.n_statements(b'"""Docstring."""\nx = 1; y = 2\nif x:\n    pass\n') == 4


def test_folders_are_counted_as_they_are_and_as_they_were(tmp_path):
    def git(*words):
        name = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", tmp_path, *name, *words], check=True, capture_output=True)

    files = {"isotrain/a/b.py": "x = 1\n", "tests/test_a.py": "y = 2\nz = 3", "train.py": "v = 1\n"}
    files |= {"conf/a.yaml": "a: 1\nb: 2\n", "isotrain/c.css": "\n", "isotrain/d.csv": "1\n2\n"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    before = size.counts(size.sources(tmp_path, "HEAD"))
    assert before == {
        "isotrain/": {".py": 1, "statements": 1, ".css": 1},
        "tests/": {".py": 2, "statements": 2},
        "conf/": {".yaml": 2},
        ".": {".py": 1, "statements": 1},
    }
    (tmp_path / "isotrain/a/b.py").write_text("x = 1\nx += 1\n")
    (tmp_path / "isotrain/untracked.py").write_text("x = 1\n")
    after = size.counts(size.sources(tmp_path))
    assert after["isotrain/"] == {".py": 2, "statements": 2, ".css": 1}
    assert size.counts(size.sources(tmp_path, "HEAD")) == before
    head, *rows = map(str.split, size.table(after).splitlines())
    assert head == ["statements", ".py", ".yaml", ".j2", ".js", ".html", ".css"]
    assert rows[-2] == ["without", "tests", "3", "3", "2", "–", "–", "–", "1"]
    assert rows[-1] == ["tests/", "2", "2", "–", "–", "–", "–", "–"]


def test_a_road_counts_the_lines_of_the_functions_entered_once(tmp_path):
    file = tmp_path / "walked.py"
    file.write_text(MODULE)

    def work():
        spec = importlib.util.spec_from_file_location("walked", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        module.work()

    parts = road.entered(work, tmp_path, "step")
    assert [{function.name for function in part if "<" not in function.name} for part in parts] == [
        {"registered", "Part", "work", "size"},
        {"step", "inner"},
        {"step", "inner"},
    ]
    first, *steps = map(road.lines, parts)
    assert first == {str(file): {3, 4, *range(21, 24), *range(28, 34)}}
    assert steps == [{str(file): set(range(12, 20))}] * 2
    assert sys.gettrace() is None


@pytest.mark.slow
def test_the_roads_of_a_run_are_counted_and_keep_their_budgets():
    """A reader's way may get shorter, not longer."""
    command = [sys.executable, "tools/road.py", "--files"]
    root = Path(__file__).parents[1]
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    rows = [line.replace(",", "").replace("–", "0").split() for line in said.splitlines()[1:]]
    found = {row[0]: tuple(map(int, row[1:])) for row in rows if row}
    to_first, step = found["lines"]
    assert 1000 < to_first <= 5_400
    assert 200 < step <= 1_250
    assert found["files"][0] <= 80
    assert found["files"][1] <= 28
    of_files = {name: n for name, n in found.items() if name.endswith(".py")}
    assert tuple(map(sum, zip(*of_files.values(), strict=True))) == found["lines"]
    assert tuple(sum(map(bool, n)) for n in zip(*of_files.values(), strict=True)) == found["files"]
    assert of_files["cli.py"][1] == 0  # read on the way, not in a step
    assert of_files["transforms/cluster_pca.py"][1] > 20
