"""`study.json`: one folder is one study, whatever is added to it."""

import json
from dataclasses import replace

import pytest
from isotrain.studies.identity import changes, check_identity, methods_on_record, write_identity
from isotrain.studies.plan import plan_jobs

from isotrain.cli import main
from isotrain.commands.plans import run_study
from isotrain.config.compose import recorded
from isotrain.runs.stored import PlanError
from isotrain.studies.definition import Study

STUDY = Study(
    name="one",
    overrides=("encoder=tiny", "source=demo"),
    tasks={"rte": ("task=rte",), "wic": ("task=wic",)},
    methods={"none": ("isotropy=none",), "mean": ("isotropy=mean",)},
    baseline="none",
    seeds=(0, 1),
)


@pytest.fixture(scope="module")
def jobs():
    """The runs of the study, planned once."""
    return plan_jobs(STUDY)


@pytest.fixture
def written(tmp_path, jobs):
    """The folder of the study, with its `study.json`, and the function that checks another one."""
    folder = tmp_path / "studies" / "one"
    folder.mkdir(parents=True)
    write_identity(STUDY, jobs, folder, "one.yaml", [])

    def check(study=STUDY, more=()):
        planned = jobs if study is STUDY and not more else plan_jobs(study, more)
        check_identity(study, planned, folder, more)
        return planned

    return folder, check


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({}, ()),
        ({"seeds": (0, 1, 2)}, ()),
        ({"methods": {**STUDY.methods, "clip": ("isotropy=clip",)}}, ()),
        ({"tasks": {"rte": ("task=rte",)}}, ()),
        ({}, ("checkpoint.every_steps=7", "report=false", "monitor.map_rows=0")),
    ],
)
def test_what_is_added_or_computes_the_same_is_welcome(written, changes, more):
    _, check = written
    check(replace(STUDY, **changes), more)


@pytest.mark.parametrize(
    ("changes", "more", "said"),
    [
        ({}, ["data.batch_size=8"], "rte-none, rte-mean, wic-none, and 1 more: data.batch_size"),
        ({}, ["data.batch_size=8"], "data.batch_size was 32 and is 8\n"),
        (
            {"methods": {**STUDY.methods, "mean": ("isotropy=clip",)}},
            [],
            "rte-mean, wic-mean: isotropy.",
        ),
        ({"tasks": {**STUDY.tasks, "wic": ("task=wic", "task.form=bi")}}, [], "cross and is bi"),
        ({"baseline": "mean"}, [], "baseline was none and is mean\n"),
        (
            {"tasks": {"sentences": STUDY.tasks["rte"]}},
            [],
            "none of sentences-none, sentences-mean is on record there, which has rte-none, rte-m",
        ),
    ],
)
def test_another_content_is_refused_with_the_keys_that_differ(written, changes, more, said):
    folder, check = written
    before = (folder / "study.json").read_bytes()
    with pytest.raises(PlanError) as told:
        check(replace(STUDY, **changes), more)
    assert said in str(told.value)
    said = f"the folder {folder} belongs to another study one; give the overrides that it was run"
    assert said in str(told.value)
    assert (folder / "study.json").read_bytes() == before


def test_that_the_overrides_must_be_the_same_is_said_first(written, monkeypatch):
    folder, check = written
    monkeypatch.setenv("MY_TOKEN", "a-secret-word")
    given = ["data.batch_size=8", "site=[pooled]", "logger.wandb.entity=a-secret-word"]
    (folder / "study.json").unlink()
    write_identity(STUDY, plan_jobs(STUDY, given[:2]), folder, "one.yaml", given)
    with pytest.raises(PlanError) as told:
        check()
    first, second, *_ = str(told.value).splitlines()
    assert "had the overrides data.batch_size=8 'site=[pooled]' 'logger.wandb.entity=<r" in first
    assert "and this one has none" in first
    assert "data.batch_size was 8 and is 32" in second
    assert "a-secret-word" not in str(told.value) + (folder / "study.json").read_text()
    with pytest.raises(PlanError) as told:  # the file has changed, not the command
        check_identity(STUDY, plan_jobs(STUDY), folder, given)
    assert str(told.value).startswith("rte-none, rte-mean")


def test_what_was_there_is_kept_when_a_part_is_run(written):
    folder, check = written
    part = replace(STUDY, tasks={"rte": ("task=rte",)})
    before = json.loads((folder / "study.json").read_text())
    write_identity(part, check(part), folder, "one.yaml", [])
    after = json.loads((folder / "study.json").read_text())
    assert after["runs"] == before["runs"]
    with pytest.raises(PlanError, match="wic-none"):
        check(more=["task.max_length=64"])


def test_a_damaged_file_ends_every_command_in_one_sentence(fake, capsys, damaged):
    assert run_study(str(fake.file), fake.overrides, 3, fake.backend) == 0
    file = fake.folder / "study.json"
    file.write_text(text := damaged(json.loads(file.read_text())))
    run = ["run", str(fake.file), *fake.overrides]
    for command in (run, ["report", str(fake.folder)], ["status", str(fake.folder)]):
        capsys.readouterr()
        assert main(command) == 2
        told = capsys.readouterr().err
        assert f"{file} is damaged" in told
        assert "move that file away" in told
    assert file.read_text() == text


@pytest.fixture
def finish(written):
    """Finish the runs of a definition, as the study is called with it; what has changed then."""
    folder, _ = written
    (folder / "study.json").unlink()

    def call(status="finished", **changed):
        study = replace(STUDY, **changed)
        jobs = [
            job._replace(folder=folder.parents[1] / "x" / f"{job.task}-{job.method}-{job.seed}")
            for job in plan_jobs(study)
        ]
        check_identity(study, jobs, folder, [])
        before = changes(folder, study)
        write_identity(study, jobs, folder, "one.yaml", [])
        told = changes(folder, study)
        assert before in ([], told), "what a report would say before it writes is what it says then"
        for job in jobs if status else ():
            job.folder.mkdir(parents=True, exist_ok=True)
            if not (job.folder / "result.json").exists():
                record = {"status": status, "method": job.method, "config": recorded(job.cfg)}
                (job.folder / "result.json").write_text(json.dumps(record))
        return told

    return call


RTE = {"tasks": {"rte": ("task=rte",)}}
CLIP = {"methods": {**STUDY.methods, "clip": ("isotropy=clip",)}}


def test_a_margin_that_is_chosen_after_the_results_shows(written, finish):
    folder, _ = written
    assert finish(status="", margin=0.5, **RTE) == []  # nothing was begun: no choice by results
    assert finish(status="", margin=0.005, **RTE) == []
    assert finish(margin=0.005, **RTE) == []
    assert finish(margin=0.005, **RTE) == []
    first = ["margin was 0.005 when the first run started, and became 0.01 when"]
    assert finish(margin=0.01, **RTE) == [f"{first[0]} 4 of 4 runs had finished"]
    assert finish(**RTE) == [
        f"{first[0]} 4 of 4 runs had finished, then became not stated when 4 of 4 runs had finished"
    ]
    kept = json.loads((folder / "study.json").read_text())["history"]
    assert [(d["margin"], d["n_finished"]) for d in kept] == [(0.005, 0), (0.01, 4), (None, 4)]
    assert kept[0].items() >= {"baseline": "none", "tasks": ["rte"], "seeds": [0, 1]}.items()


def test_what_is_added_after_the_results_and_what_is_left_out_shows(written, finish):
    folder, _ = written
    assert finish(seeds=(0, 1, 2), **RTE, **CLIP) == []
    assert methods_on_record(folder, "rte") == ["none", "mean", "clip"]
    assert methods_on_record(folder, "wic") == []
    assert finish(seeds=(0, 1, 2, 3), **RTE) == [
        "methods finished earlier and left out now: clip",
        "seeds 3 were added to 0–2 when 9 of 9 runs had finished",
    ]
    assert methods_on_record(folder, "rte") == ["none", "mean", "clip"]
    assert finish("running", seeds=(0, 1, 2), **CLIP) == [
        "tasks wic were added to rte when 11 of 11 runs had finished",
        "seeds finished earlier and left out now: 3",
    ]
    back = {"seeds": (0, 1, 2, 3), **RTE, **CLIP}
    assert finish(**back)[0] == "tasks planned earlier, never finished, left out: wic"
    assert finish(**{**back, "seeds": (3, 2, 1, 0)}) == finish(**back)  # an order is no choice


def test_runs_that_finished_before_the_first_call_show(written, finish):
    folder, _ = written
    assert finish(**RTE) == []
    (folder / "study.json").unlink()
    said = ["4 of 4 runs had finished before the first call on record"]
    assert finish(**RTE) == said
    assert finish(margin=0.01, **RTE) == [
        *said,
        "margin was not stated at the first call on record, and became 0.01 when 4 of 4 runs had "
        "finished",
    ]


def test_run_and_report_reject_another_study_and_status_tells_of_it(fake, capsys):
    assert run_study(str(fake.file), fake.overrides, 3, fake.backend) == 0
    before = [(fake.folder / name).read_bytes() for name in ("study.json", "table.md")]
    other = [*fake.overrides, "data.batch_size=8"]
    for action, code in (("run", 2), ("status", 0), ("report", 2)):
        capsys.readouterr()
        assert main([action, str(fake.file), *other]) == code
        told = capsys.readouterr().err
        assert "data.batch_size was 32 and is 8" in told
        assert "its runs, 6 of them finished, are elsewhere and stay" in told
    after = [(fake.folder / name).read_bytes() for name in ("study.json", "table.md")]
    assert after == before
    assert run_study(str(fake.file), other, 3, fake.backend, name="small") == 0
    assert (fake.runs / "studies" / "small" / "table.md").is_file()
    assert main(["status", str(fake.file), "--name", "small", *other]) == 0
    assert "study small: 6 runs, 6 finished" in capsys.readouterr().out
