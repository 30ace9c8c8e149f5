"""`study.json`: it moves with its folder, forgets nothing, and a choice by results shows."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.runs.stored import PlanError
from isotrain.studies.call import Job
from isotrain.studies.definition import Study
from isotrain.studies.record import changes, left_out, listed, read_plan, write_plan
from tests.studies.played import leave

METHODS = {"none": ("isotropy=none",), "mean": ("isotropy=mean",), "clip": ("isotropy=clip",)}
TABLES = ("table.md", "table.csv", "table.tex", "runs.csv")


class Written:
    """A study that is called with changing definitions."""

    def __init__(self, root):
        self.root, self.folder = root, root / "studies" / "one"

    def call(self, status="finished", version="a", given=(), **changed):
        """What the plan is after a call, whose runs end with a status (`""`: none starts)."""
        content = {"tasks": {"rte": ()}, "methods": METHODS, "baseline": "none", "seeds": (0, 1)}
        study = Study(name="one", **{**content, **changed})
        jobs = [self.job(t, m, s, version) for s in study.seeds for t, m, _ in study.pairs]
        call = SimpleNamespace(kind="study", name="one", folder=self.folder, config_dir=None)
        call.overrides = call.arguments = list(given)
        plan = write_plan(call, "one.yaml", study, jobs)
        assert read_plan(self.folder) == plan
        for job in jobs if status else ():
            if not job.folder.exists():
                leave(job.folder, status=status)
        return plan

    def job(self, task, method, seed, version):
        version = version if method == "mean" else "a"
        folder = self.root / task / f"{method}-{seed}-{version}"
        return Job(task, method, seed, folder, definition=f"{version}{task}{method}")


@pytest.fixture
def one(tmp_path):
    return Written(tmp_path / "runs")


def gone(plan):
    """The methods that count beside those of a plan of which every method has finished."""
    return left_out(plan, "rte", plan.study.methods)


def test_without_a_file_there_is_no_plan(tmp_path):
    assert read_plan(tmp_path) is None
    assert read_plan(tmp_path / "none") is None


def test_runs_are_found_beside_the_plan_wherever_the_output_folder_is(one, tmp_path, monkeypatch):
    before = one.call()
    assert [job.folder for job in before.jobs][-1] == one.root / "rte" / "clip-1-a"
    text = (one.folder / "study.json").read_text()
    assert str(tmp_path) not in text
    one.root.rename(tmp_path / "moved")
    plan = read_plan(tmp_path / "moved" / "studies" / "one")
    assert [job.folder for job in plan.jobs][-1] == tmp_path / "moved" / "rte" / "clip-1-a"
    assert [job[:3] for job in plan.jobs] == [job[:3] for job in before.jobs]
    monkeypatch.chdir(tmp_path / "moved" / "studies")
    assert all((job.folder / "result.json").is_file() for job in read_plan(Path("one")).jobs)


def test_the_tables_of_a_moved_study_are_the_same_bytes(fake, tmp_path, capsys):
    assert fake.run() == 0
    before = {name: (fake.folder / name).read_bytes() for name in TABLES}
    moved = shutil.move(fake.runs, tmp_path / "elsewhere") / "studies" / "few"
    fake.file.unlink()
    for name in TABLES:
        (moved / name).unlink()
    assert fake.main("report", str(moved)) == 0
    assert {name: (moved / name).read_bytes() for name in TABLES} == before
    capsys.readouterr()
    assert fake.main("status", str(moved)) == 0
    assert "study few: 4 runs, 4 finished\n" in capsys.readouterr().out


def test_secrets_of_a_command_line_are_not_kept(one, monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "a-secret-word")
    plan = one.call(given=["logger.wandb.entity=a-secret-word", "data.batch_size=8"])
    assert "a-secret-word" not in (one.folder / "study.json").read_text()
    assert plan.overrides[1] == "data.batch_size=8"


def test_a_margin_that_is_chosen_after_the_results_shows(one):
    assert changes(one.call("", margin=0.5)) == []  # nothing was begun: no choice by results
    assert changes(one.call("", margin=0.005)) == []
    assert changes(one.call(margin=0.005)) == []
    assert changes(one.call(margin=0.005)) == []
    first = "margin was 0.005, and became 0.01 when 6 of 6 runs had finished"
    assert changes(one.call(margin=0.01)) == [first]
    plan = one.call(margin_share=0.1)
    second = "margin was 0.01, and became 0.1 of baseline − untrained when 6 of 6 runs had finished"
    assert changes(plan) == [first, second]
    assert [entry.n_finished for entry in plan.history] == [0, 6, 6]


def test_a_baseline_that_is_chosen_after_the_results_shows(one):
    one.call()
    (said,) = changes(one.call(baseline="mean"))
    assert said == "baseline was none, and became mean when 6 of 6 runs had finished"


def test_what_is_added_after_the_results_and_what_is_left_out_shows(one):
    two = {"methods": {name: METHODS[name] for name in ("none", "mean")}}
    assert changes(one.call(seeds=(0, 1, 2))) == []
    plan = one.call(seeds=(0, 1, 2, 3), **two)
    assert changes(plan) == [
        "methods was clip, mean, none, and became mean, none when 9 of 9 runs had finished",
        "seeds was 0–2, and became 0–3 when 9 of 9 runs had finished",
    ]
    assert gone(plan) == ["clip (artecl)"]
    assert left_out(plan, "wic", {"none", "mean"}) == []
    plan = one.call("running", seeds=(0, 1, 2), tasks={"rte": (), "wic": ()})
    assert "tasks was rte, and became rte, wic when 11 of 11 runs had finished" in changes(plan)
    assert gone(plan) == [], "clip is back"
    n = len(one.call(seeds=(0, 1, 2)).history)
    assert n == len(one.call(seeds=(2, 0, 1)).history), "an order is no choice"


def test_a_method_that_was_defined_otherwise_counts_and_shows(one):
    one.call()
    plan = one.call(version="b")
    assert gone(plan) == ["mean (arteme)"]
    assert changes(plan) == ["methods defined otherwise before: mean (2 runs finished)"]
    assert gone(one.call(version="c")) == ["mean (arteme)", "mean (brteme)"]
    assert gone(one.call(version="a")) == ["mean (brteme)", "mean (crteme)"]


def test_definitions_of_which_no_run_started_are_forgotten(one):
    one.call("", version="b", seeds=(5,), margin=0.3)
    plan = one.call(version="a")
    assert changes(plan) == []
    assert len(plan.history) == 1
    assert gone(plan) == []


def test_runs_that_finished_before_the_first_call_show(one):
    one.call()
    (one.folder / "study.json").unlink()
    said = "6 of 6 runs had finished before the first call on record"
    assert changes(one.call()) == [said]
    assert changes(one.call(margin=0.01)) == [
        said,
        "margin was not stated, and became 0.01 when 6 of 6 runs had finished",
    ]


PART = st.lists(st.sampled_from(("none", "mean", "clip")), min_size=1, unique=True)
CALL = st.tuples(PART, st.sets(st.integers(0, 2), min_size=1), st.sampled_from("ab"), st.booleans())


@settings(max_examples=40)
@given(st.lists(CALL, min_size=1, max_size=5))
def test_no_method_that_ever_finished_and_no_first_definition_is_lost(tmp_path_factory, calls):
    """The reference keeps all that ever ran beside the plan."""
    one, ran, first = Written(tmp_path_factory.mktemp("one") / "runs"), set(), None
    for methods, seeds, version, does_run in calls:
        own = {"methods": {name: METHODS[name] for name in methods}, "baseline": methods[0]}
        plan = one.call("finished" if does_run else "", version, seeds=tuple(sorted(seeds)), **own)
        first = first or (plan.history[0] if does_run else None)
        assert first in (None, plan.history[0])
        shown = {job.method for job in plan.jobs if (job.folder / "result.json").is_file()}
        ran |= {(m, version if m == "mean" else "a") for m in methods if does_run}
        now = {(m, version if m == "mean" else "a") for m in shown}
        compared = {(method, v) for method, v in ran - now if method != methods[0]}
        assert len(left_out(plan, "rte", shown)) == len(compared)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[:-9],
        lambda text: "[]",
        lambda text: text.replace('"seeds": [', '"seeds": ["x", ', 1),
        lambda text: text.replace('"runs"', '"rums"', 1),
        lambda text: text.replace('"kind"', '"kind": 1, "kin"', 1),
        lambda text: "[" * 100_000,
    ],
)
def test_a_damaged_file_ends_every_command_in_one_sentence(one, damage, capsys):
    from isotrain.cli import main

    one.call()
    file = one.folder / "study.json"
    file.write_text(text := damage(file.read_text()))
    with pytest.raises(PlanError, match="is damaged"):
        one.call()
    for command in ("status", "report"):
        assert main([command, str(one.folder)]) == 2
        message = capsys.readouterr().err
        assert f"{file} is damaged (" in message
        assert "move it away, and give the command again; methods left out before then" in message
    assert file.read_text() == text


def test_a_call_rejects_a_damaged_file_before_it_launches(fake, capsys):
    fake.folder.mkdir(parents=True)
    (fake.folder / "study.json").write_text("{")
    assert fake.run() == 2
    assert "study.json is damaged" in capsys.readouterr().err
    assert not fake.started


def test_numbers_in_a_row_are_a_range():
    assert listed([]) == ""
    assert listed([0, 1, 2, 3, 7]) == "0–3, 7"
    assert listed([3, 2, 1]) == "3, 2, 1"
    assert json.loads(json.dumps(listed(["b", "a"]))) == "b, a"
