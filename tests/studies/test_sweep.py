"""Sweeps of `train -m`: the jobs of a command line, and that they run and are found again."""

import csv
import json
from functools import partial

import pytest

from isotrain.cli import main
from isotrain.commands import plans as commands
from isotrain.jobs.process import fresh
from isotrain.studies.sweep import plan_sweep, run_sweep, sweep_folder


@pytest.fixture
def overrides(fake):
    return ["task=rte", "encoder=tiny", "source=demo", *fake.overrides, "seed=0,1"]


def test_jobs_are_the_product_with_names_methods_and_one_thread():
    given = ["task=rte", "isotropy=none,clip", "objective=[cosreg]", "site=[tokens],[pooled]"]
    jobs = plan_sweep(given)
    assert [job.name for job in jobs][1:3] == [
        "1-isotropy_none-site_pooled",
        "2-isotropy_clip-site_tokens",
    ]
    assert [job.method for job in jobs] == ["cosreg"] * 2 + ["clip-cosreg"] * 2
    assert {job.cfg.threads for job in jobs} == {1}
    assert plan_sweep([*given, "threads=3"])[0].cfg.threads == 3
    assert len({job.id for job in jobs}) == 4
    folder = sweep_folder(jobs, given)
    assert folder != sweep_folder(jobs, [*given, "threads=3"])
    assert folder != sweep_folder(jobs, given, "my_groups"), "its groups may be other ones"


def test_a_sweep_runs_is_found_again_and_shown_by_its_folder(fake, overrides, capsys):
    backend = fresh(fake.command)
    assert run_sweep(overrides, 2, None, backend) == 0
    assert "2 runs, 0 finished before, 2 to do, 2 at a time" in capsys.readouterr().out
    assert run_sweep(overrides, 2, None, backend) == 0
    assert "2 finished before, 0 to do" in capsys.readouterr().out
    assert len(fake.noted("start")) == 2
    (folder,) = fake.runs.glob("sweeps/seed-*")
    assert main(["status", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["finished"] == 2
    assert main(["cancel", str(folder)]) == 0


def test_run_of_a_moved_folder_goes_on_there(fake, overrides, monkeypatch, tmp_path, capsys):
    backend = fresh(fake.command)
    assert run_sweep(overrides, 2, None, backend) == 0
    moved = fake.runs.rename(tmp_path / "moved")
    (folder,) = moved.glob("sweeps/seed-*")
    monkeypatch.setattr(commands, "run_sweep", partial(run_sweep, backend=backend))
    for _ in range(2):
        capsys.readouterr()
        assert main(["run", str(folder)]) == 0
        assert f"2 finished before, 0 to do, 1 at a time; {folder}\n" in capsys.readouterr().out
    assert [*moved.glob("sweeps/*")] == [folder]
    assert not fake.runs.exists()


def test_a_report_of_a_sweep_has_its_own_runs_alone(fake, overrides, capsys):
    backend = fresh(fake.command)
    assert run_sweep([*overrides, "isotropy=mean"], 2, None, backend) == 0
    assert run_sweep(overrides, 2, None, backend) == 0
    folder = sweep_folder(plan_sweep(overrides), overrides)
    capsys.readouterr()
    assert main(["report", str(folder)]) == 0
    assert "# Runs: 2 finished" in capsys.readouterr().out
    lines = list(csv.DictReader((folder / "runs.csv").read_text().splitlines()))
    assert [(line["method"], line["seed"]) for line in lines] == [("none", "0"), ("none", "1")]


def test_a_damaged_sweep_ends_in_one_sentence(fake, overrides, capsys, damaged):
    assert run_sweep(overrides, 2, None, fresh(fake.command)) == 0
    (file,) = fake.runs.glob("sweeps/seed-*/sweep.json")
    file.write_text(damaged(json.loads(file.read_text())))
    for action in ("status", "report", "cancel"):
        capsys.readouterr()
        assert main([action, str(file.parent)]) == 2
        assert f"{file} is damaged" in capsys.readouterr().err


def test_rerun_trains_again(fake, overrides):
    for _ in range(2):
        assert run_sweep([*overrides, "rerun=true"], 1, None, fresh(fake.command)) == 0
    assert len(fake.noted("start")) == 4
