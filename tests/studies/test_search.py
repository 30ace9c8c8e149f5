"""Searches: their yaml files, scores, ends of trials, resumption, and calls at the same time."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from optuna.trial import TrialState

from isotrain.runs.files import read_result
from isotrain.runs.stored import PlanError
from isotrain.studies.call import RunError
from isotrain.studies.confirm import NOTHING
from isotrain.studies.search import HOPELESS, Search, load_search, read_search
from isotrain.studies.trials import storage_url
from tests.studies.searched import FakeCall, formula, searched, trials, values_of


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "searches" / "few"


def test_what_is_left_out_has_its_default(tmp_path):
    (file := tmp_path / "mine.yaml").write_text("space: {a: [1, 2]}\nn_trials: 3\n")
    assert load_search(str(file)) == Search(name="mine", space={"a": [1, 2]}, n_trials=3)


def test_shipped_searches_say_what_every_key_means():
    root = Path(__file__).parents[2]
    files = [*root.glob("conf/searches/*.yaml"), *root.glob("experiments/*/search.yaml")]
    assert len(files) >= 2
    for file in files:
        assert load_search(str(file)).pruner == "MedianPruner"
        lines = file.read_text().splitlines()
        opening = [line.partition(":")[0] for line in lines if line[2:3] != " "]
        assert opening[:4] == ["# Question", "# Command", "# Device", "# Expected"]
        for line in lines:
            if line[:1].isalpha() and not line.startswith("pruner_options"):
                assert "#" in line or line == "space:", line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "overides: []\noverrides: task=rte\nspace: {x: [1, 2]}\ndirection: up\nmargin: 0\n"
            "seeds: [1, 1]",
            [
                "n_trials: Field required",
                "no key overides; did you mean overrides?",
                "overrides: Input should be a list, got 'task=rte'",
                "no key direction; ",
                "margin: Input should be greater than 0, got '0'",
                "seeds: at least one seed, and each once, got '[1, 1]'",
            ],
        ),
        ("sampler: TPESampel", ["sampler: no TPESampel; did you mean TPESampler?"]),
        ("pruner: Median", ["pruner: no Median; did you mean MedianPruner?"]),
        (
            "pruner: NopPruner\npruner_options: {patience: 1}",
            ["pruner_options of NopPruner: NopPruner() takes no arguments, got {'patience': 1}"],
        ),
        (
            "storage: postgresql://me:password@host/db",
            ["storage must hold no login; write ${oc.env:NAME} for a variable"],
        ),
        ("overrides: [x=1]", ["space.x has its values elsewhere in the file; leave it out"]),
        (
            "space: {seed: [1, 2]}",
            ["space.seed has its values elsewhere in the file; leave it out"],
        ),
        ("space: {x: 1}", ["space.x must be choice(none, clip), "]),
    ],
)
def test_errors_of_a_file_are_reported(tmp_path, text, message):
    least = {"space": "{x: [1, 2]}", "n_trials": "4"}
    more = [f"{key}: {value}" for key, value in least.items() if f"{key}:" not in text]
    (file := tmp_path / "bad.yaml").write_text("\n".join([text, *more * (len(message) == 1)]))
    with pytest.raises(PlanError) as error:
        load_search(str(file))
    lines = str(error.value).splitlines()
    assert len(lines) == len(message)
    for line in message:
        assert sum(one.startswith(f"search bad: {line}") for one in lines) == 1, (line, lines)


def test_a_score_is_the_mean_over_seeds(folder, capsys):
    call = FakeCall(folder)
    assert searched(call, n_trials=3, seeds=[0, 2]) == 0
    assert [job.seed for job in call.launched] == [0, 2] * 3
    for trial in trials(folder):
        one, other = trial.user_attrs["scores"]
        assert other - one == pytest.approx(0.02)
        assert trial.value == pytest.approx((one + other) / 2)
        runs = [read_result(folder / run) for run in trial.user_attrs["runs"]]
        assert [run["scores"]["val/accuracy"] for run in runs] == [one, other]
    assert call.launched[0].overrides[-2:] == ("seed=0", "trial=0")
    printed = capsys.readouterr().out
    assert f"search few: 3 trials, 0 ended before, 1 at a time; {folder}" in printed
    assert re.search(
        r"start trial 0: optimizer\.lr=0\.\d+\ncomplete trial 0: val/accuracy ", printed
    )
    again = FakeCall(folder)
    assert searched(again, n_trials=4, seeds=[0, 2]) == 0
    assert len(again.launched) == 2, "one more trial"


def test_the_record_of_a_search_has_what_readers_need(folder):
    searched(FakeCall(folder, overrides=["source=demo", "+note=hf_abcdefghijklmnopqrstuvwxyz"]))
    record = read_search(folder)
    assert (record.search.name, record.search.n_trials) == ("few", 4)
    assert record.overrides == ("source=demo", "+note=<redacted>")
    assert (record.task, record.objective, record.direction) == ("rte", "val/accuracy", "max")
    with pytest.raises(PlanError, match=r"no search was started in .*: it has no search\.json"):
        read_search(folder.parent)
    content = json.loads((folder / "search.json").read_text())
    (folder / "search.json").write_text(json.dumps(content | {"task": 1}))
    with pytest.raises(PlanError, match=r"search\.json is damaged .* give the command again"):
        read_search(folder)


def test_runs_that_are_finished_are_read(folder):
    searched(FakeCall(folder), n_trials=2)
    (folder / "study.db").unlink()
    again = FakeCall(folder)
    assert searched(again, n_trials=2) == 0
    assert not again.launched
    assert [trial.state for trial in trials(folder)] == [TrialState.COMPLETE] * 2


def test_equal_values_are_run_once(folder):
    call, given = FakeCall(folder, lambda job: 0.5, n_at_once=6), []
    launch = call.launch
    call.launch = lambda jobs: given.extend(jobs) or launch(jobs)
    searched(call, space={"a": [1, 2]}, n_trials=6)
    assert len(given) == 2, "of six trials"
    assert [trial.value for trial in trials(folder)] == [0.5] * 6


def test_each_trial_says_how_it_ended(folder, capsys):
    ends = [
        {"scores": {"val/accuracy": 0.5}, "degenerate_reason": "all one class"},
        RunError("NonFiniteError", "the loss is nan"),
        {"scores": {"val/accuracy": math.nan}},
        RunError("PrunedError", "143"),
        {"scores": {"val/loss": 0.5}},
        RunError("RuntimeError", "out of\nmemory hf_abcdefghijklmnopqrstuvwxyz"),
        0.75,
    ]

    def score(job):
        end = ends[len(call.launched) - 1]
        if isinstance(end, BaseException):
            raise end
        return end

    call = FakeCall(folder, score, n_at_once=3)
    assert searched(call, n_trials=7) == 1
    message = [
        ("degenerate", TrialState.PRUNED, "seed 0: all one class"),
        ("diverged", TrialState.PRUNED, "seed 0: NonFiniteError: the loss is nan"),
        ("undefined", TrialState.PRUNED, "seed 0: val/accuracy is not finite"),
        ("pruned", TrialState.PRUNED, "seed 0: NopPruner"),
        ("failed", TrialState.FAIL, "seed 0: no val/accuracy in its scores: val/loss"),
        ("failed", TrialState.FAIL, "seed 0: RuntimeError: out of; memory <redacted>"),
        ("complete", TrialState.COMPLETE, None),
    ]
    found = trials(folder)
    assert [(t.user_attrs.get("end"), t.state, t.user_attrs.get("why")) for t in found] == message
    assert [sum(t.constraints.values()) > 0 for t in found] == [True] * 3 + [False] * 4
    printed = capsys.readouterr().out
    assert "degenerate trial 0: seed 0: all one class\n" in printed
    assert "complete trial 6: val/accuracy 75.0\n" in printed


def test_a_trial_that_ended_has_no_runs_of_other_seeds(folder):
    def score(job):
        if job.seed == 0 and values_of(job)["optimizer.lr"] > 0.5:
            raise RunError("PrunedError", "143")
        return formula(job)

    call = FakeCall(folder, score, n_at_once=4)
    assert searched(call, n_trials=8, seeds=[0, 1]) == 0
    pruned = [trial for trial in trials(folder) if trial.state == TrialState.PRUNED]
    assert 0 < len(pruned) < 8
    assert all(trial.params["optimizer.lr"] > 0.5 for trial in pruned)
    assert len(call.launched) == 2 * 8 - len(pruned)


def test_values_that_cannot_run_are_a_failed_trial(folder):
    call = FakeCall(folder, lambda job: 0.5)
    plan = call.plan
    call.plan = lambda pairs, seeds, more=(): plan(
        [(*pair[:2], [*pair[2], *["a.b=wrong"] * (more == ["trial=1"])]) for pair in pairs], seeds
    )
    assert searched(call, n_trials=3) == 1
    assert [t.user_attrs.get("why") for t in trials(folder)] == [
        *(None, "cannot run: a.b=wrong is wrong; and more", None)
    ]


def test_a_call_stops_when_nothing_works(folder, capsys):
    def score(job):
        raise RunError("RuntimeError", "no memory")

    assert searched(FakeCall(folder, score), n_trials=9) == 1
    assert len(trials(folder)) == HOPELESS
    assert (
        "stopped: 3 trials failed and no other ended; correct the cause, raise n_trials"
        in capsys.readouterr().out
    )
    assert searched(FakeCall(folder), n_trials=9) == 0
    assert len(trials(folder)) == 9


@pytest.mark.parametrize(
    ("changed", "differ"),
    [
        ({"seeds": [1]}, "seeds, configuration or data"),
        ({"space": {"optimizer.lr": "interval(0.0, 0.5)"}}, "space, configuration or data"),
        ({"overrides": ["task=rte", "encoder=bert"]}, "configuration or data"),
    ],
)
def test_trials_of_another_search_are_rejected(folder, changed, differ):
    searched(FakeCall(folder), n_trials=1)
    message = rf"has 1 trial of another search \({differ} differ\), whose scores do not compare"
    with pytest.raises(PlanError, match=message):
        searched(FakeCall(folder), **changed)
    assert searched(FakeCall(folder), n_trials=2) == 0


@pytest.mark.parametrize(
    ("changed", "overrides", "message"),
    [
        ({}, ["optimizer.lr=1"], "optimizer.lr: the space has its values; leave it out"),
        ({"space": {"a": ["right", "wrong"]}}, [], "a=wrong is wrong"),
        ({"space": {"task": ["rte", "wic"]}, "overrides": []}, [], "one task, got rte, wic"),
        (
            {"storage": "nothing://here"},
            [],
            "trials in nothing://here cannot be opened .* or correct storage",
        ),
    ],
)
def test_what_cannot_run_is_rejected_before_any_trial(folder, changed, overrides, message):
    call = FakeCall(folder, overrides=overrides)
    with pytest.raises(PlanError, match=message):
        searched(call, **changed)
    assert not call.launched


@pytest.mark.parametrize("launcher", ["submitit_slurm", "ray"])
def test_nodes_do_not_share_a_file_of_sqlite(folder, launcher):
    call = FakeCall(folder)
    call.launcher = launcher
    with pytest.raises(PlanError, match=f"runs of {launcher} .*; write storage: journal:trials"):
        searched(call)
    assert not call.launched
    assert searched(call, storage="journal:trials.log") == 0


def test_a_damaged_storage_is_reported(folder):
    folder.mkdir(parents=True)
    (folder / "study.db").write_text("no database" * 100)
    with pytest.raises(PlanError, match=r"study\.db cannot be opened \(Data.*; move it away"):
        searched(FakeCall(folder))


def test_a_missing_package_is_reported(monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("optuna", "isotrain.studies"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(PlanError, match=r"a search needs the package optuna; pip install .*\[tune"):
        from isotrain.studies import search  # noqa: F401


def process(folder, n_trials, n_at_once=1, kill_at=0, n_calls=1, storage=""):
    """A call in a process of its own."""
    own = [str(folder), *map(str, (n_trials, n_at_once, kill_at, n_calls)), storage]
    return subprocess.Popen([sys.executable, "-m", "tests.studies.searched", *own])


def outcome(folder):
    return [(t.number, t.params, t.value) for t in trials(folder)]


def test_a_search_killed_in_the_middle_gives_the_trials_of_an_uninterrupted_one(folder, tmp_path):
    for kill_at in (5, 4, 0):  # in trials 4 and 7
        assert process(folder, 12, kill_at=kill_at).wait() == (-9 * (kill_at > 0))
    whole = tmp_path / "whole" / "searches" / "few"
    assert searched(FakeCall(whole), n_trials=12, sampler="TPESampler") == 0
    assert outcome(folder) == outcome(whole)
    assert len(outcome(folder)) == 12
    assert not list((whole / "calls").iterdir())


def test_an_error_of_the_call_itself_is_raised_and_loses_no_trial(folder):
    def score(job):
        if len(call.launched) == 3:
            raise KeyError("ours")
        return formula(job)

    call = FakeCall(folder, score, n_at_once=2)
    with pytest.raises(KeyError, match="ours"):
        searched(call)
    assert [trial.state for trial in trials(folder)] == [TrialState.COMPLETE] * 2 + [
        TrialState.RUNNING
    ] * 2
    values = [trial.params for trial in trials(folder)]
    assert searched(FakeCall(folder)) == 0
    assert [trial.params for trial in trials(folder)] == values
    assert [trial.state for trial in trials(folder)] == [TrialState.COMPLETE] * 4


@pytest.mark.parametrize("storage", ["", "journal:trials.log"])
def test_two_calls_at_once_make_every_trial_once(folder, storage):
    calls = [process(folder, 16, n_at_once=n, n_calls=2, storage=storage) for n in (1, 3)]
    assert [call.wait() for call in calls] == [0, 0]
    found = trials(folder, storage or None)
    assert [trial.number for trial in found] == list(range(16))
    assert {trial.state for trial in found} == {TrialState.COMPLETE}
    assert len({trial.params["optimizer.lr"] for trial in found}) == 16
    assert len({trial.user_attrs["call"] for trial in found}) == 2
    assert len(list((folder.parents[1] / "rte").iterdir())) == 16


def test_a_password_in_the_address_of_a_storage_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("STORAGE", f"sqlite:///{tmp_path / 'own.db'}")
    assert storage_url("${oc.env:STORAGE}", tmp_path) == f"sqlite:///{tmp_path / 'own.db'}"
    folder = tmp_path / "searches" / "few"
    assert searched(FakeCall(folder), storage="${oc.env:STORAGE}") == 0
    assert (tmp_path / "own.db").is_file()
    assert "own.db" not in (folder / "search.json").read_text()


def test_the_seed_of_the_sampler_sets_the_values(tmp_path):
    def values(name, seed):
        own = tmp_path / name / "searches" / "few"
        searched(FakeCall(own), seed=seed, n_trials=3)
        return [trial.params["optimizer.lr"] for trial in trials(own)]

    first = values("a", 0)
    assert len(set(first)) == 3
    assert values("b", 0) == first
    assert values("c", 1) != first


TEXT = """
overrides: [task=rte, encoder=tiny, source=demo]
space: {isotropy: "choice(none, mean)", optimizer.lr: "tag(log, interval(1e-5, 1e-3))"}
n_trials: 3
seeds: [0, 2]
"""


def test_a_search_runs_on_the_command_line(fake, capsys):
    fake.file.write_text(TEXT)
    folder = fake.runs / "searches" / "few"
    assert fake.run("--list") == 0
    assert "3 trials of search few, by TPESampler\n" in capsys.readouterr().out
    assert not folder.exists()
    assert fake.run() == 0
    assert fake.started == ["few-0", "few-2"] * 3
    assert "3 of 3 trials: 3 complete." in capsys.readouterr().out
    result = read_result(folder / trials(folder)[2].user_attrs["runs"][1])
    config = result["config"]
    assert (config["search"], config["study"], config["trial"]) == ("few", "few", 2)
    assert config["optimizer"]["lr"] == pytest.approx(trials(folder)[2].params["optimizer.lr"])
    assert fake.main("status", str(folder)) == 0
    assert "search few: 3 trials, 3 complete\n" in capsys.readouterr().out
    assert fake.main("report", str(folder)) == 0
    assert "To compare baseline, winner over seeds" in capsys.readouterr().out
    assert fake.run("optimizer.lr=1") == 2
    assert "optimizer.lr: the space has its values; leave it out" in capsys.readouterr().err
    fake.failing["few", 0] = ValueError("no memory")
    fake.file.write_text(TEXT.replace("n_trials: 3", "n_trials: 4"))
    assert fake.run() == 1
    assert trials(folder)[3].user_attrs["why"] == "seed 0: ValueError: no memory"


@pytest.mark.parametrize(
    ("key", "options", "more", "message"),
    [
        ("isotropy", ["none", "mean"], "", "To compare none, mean over seeds"),
        ("data.batch_size", ["16"], "", "To compare baseline, winner over seeds"),
        ("data.batch_size", ["32"], "", NOTHING),  # the default
        ("freezing", ["only"], "freezing.patterns=[a]", NOTHING),  # only `only` has patterns
    ],
)
def test_the_study_that_confirms_is_written_where_it_can_run(
    fake, capsys, key, options, more, message
):
    keys = {
        "space": {key: [options[0], options[-1]]},
        "overrides": ["task=rte", "encoder=tiny", "source=demo", *filter(None, [more])],
        "n_trials": len(options),
        "sampler": "BruteForceSampler",
    }
    fake.file.write_text(json.dumps(keys))
    assert fake.run() == 0
    assert message in capsys.readouterr().out
    files = [*(fake.runs / "searches" / "few").glob("confirm_*")]
    assert len(files) == (message != NOTHING)
    for file in files:
        assert fake.main("run", str(file), f"output_dir={fake.runs}", "--list") == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("space: {optimizer.ler: [1, 2]}", "no key optimizer.ler; did you mean optimizer.lr?"),
        ("space: {data.batch_size: [8, 0]}", "data.batch_size"),
        (
            "space: {optimizer.lr: [5.0e-5, 1.0e-3]}\noverrides: [task=rtee]",
            "task=rtee does not ex",
        ),
        (
            "overrides: [task=rte, encoder=tiny, source=demo, trainer.devices=2]",
            "a run of several processes is not pruned; write pruner: NopPruner",
        ),
    ],
)
def test_values_are_checked_before_the_first_trial(fake, capsys, more, message):
    given = [line for line in TEXT.splitlines() if line.partition(":")[0] not in more]
    fake.file.write_text("\n".join([*given, more]))
    assert fake.run() == 2
    assert message in capsys.readouterr().err
    assert not fake.started


@pytest.mark.parametrize("sampler", ["BruteForceSampler", "GridSampler"])
def test_a_sampler_of_a_finite_grid_ends_as_others_do(folder, sampler):
    more = {"sampler_options": {"search_space": {"optimizer.lr": ["0.1", "0.2"]}}}
    own = more if sampler == "GridSampler" else {}
    space = {"optimizer.lr": "choice(0.1, 0.2)"}
    assert searched(FakeCall(folder), n_trials=2, space=space, sampler=sampler, **own) == 0
    assert sorted(trial.params["optimizer.lr"] for trial in trials(folder)) == ["0.1", "0.2"]


def test_options_that_only_drawing_reads_are_reported(folder):
    with pytest.raises(PlanError, match=r"TPESampler cannot draw a trial: .*; correct"):
        searched(FakeCall(folder), n_trials=12, sampler="TPESampler", sampler_options={"gamma": 3})
