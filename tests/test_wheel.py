"""A wheel has all of a checkout's package, and trains, studies and analyses from any folder."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.processes import ROOT, python

HOMES = {  # in the checkout, and in a wheel
    "isotrain": "isotrain",
    "conf": "isotrain/conf",
    "hydra_plugins": "hydra_plugins",
}
STUDY = """
overrides: [encoder=tiny, encoder.width=16, source=demo, threads=1, trainer.max_steps=2]
tasks: {wic: [task=wic]}
methods: {none: [isotropy=none], clip: [isotropy=clip]}
baseline: none
seeds: [0]
"""
COMMANDS = (
    "run mine.yaml",
    "analyze analysis=contextuality encoder=tiny source=demo analysis.max_rows=600",
)

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """What a wheel of this checkout puts into site-packages."""
    place = tmp_path_factory.mktemp("wheel")
    copy = place / "checkout"
    for name in HOMES:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    done = python("-m", "build", "--wheel", "--no-isolation", "--outdir", place, cwd=copy)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = place.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(place / "site")
    return place / "site"


@pytest.mark.parametrize("name", HOMES)
def test_every_file_of_the_package_is_in_it(unpacked, name):
    """A new package must stand in pyproject's list, a new kind of file in its package data."""
    files = [f for f in (ROOT / name).rglob("*") if f.is_file() and f.parent.name != "__pycache__"]
    assert files
    for file in files:
        there = unpacked / HOMES[name] / file.relative_to(ROOT / name)
        assert there.is_file(), file
        assert there.read_bytes() == file.read_bytes(), file


def test_its_commands_run_in_any_folder(unpacked, tmp_path):
    (tmp_path / "mine.yaml").write_text(STUDY)
    outside = {"PYTHONPATH": str(unpacked), "PYTHONSAFEPATH": "1"}
    where = "import isotrain; print(isotrain.__file__)"
    for arguments in (["-c", where], *(["-m", "isotrain", *c.split()] for c in COMMANDS)):
        done = python(*arguments, cwd=tmp_path, **outside)
        assert done.returncode == 0, done.stdout + done.stderr
        if arguments[0] == "-c":
            assert Path(done.stdout.strip()).is_relative_to(unpacked)
    results = [json.loads(f.read_text()) for f in tmp_path.glob("runs/wic/*/result.json")]
    assert sorted(result["method"] for result in results) == ["clip", "none"]
    assert all(result["status"] == "finished" for result in results)
    assert (tmp_path / "runs/studies/mine/study.html").is_file()
    assert len(list(tmp_path.glob("runs/analysis/contextuality/*/analysis.html"))) == 1
