"""The runs of a study before anything runs: configurations, folders, and refusals."""

from dataclasses import replace

import pytest
from isotrain.studies.plan import check_parts, plan_jobs, study_folder

from isotrain.config.compose import compose_run, plain, run_folder
from isotrain.runs.stored import PlanError
from isotrain.studies.definition import Study

STUDY = Study(
    name="one",
    overrides=("encoder=tiny", "source=demo"),
    tasks={"rte": ("task=rte",), "wic": ("task=wic", "data.batch_size=16")},
    methods={"none": ("isotropy=none",), "mean": ("isotropy=mean",)},
    baseline="none",
    seeds=(3, 4),
)


def test_order_names_and_configurations():
    jobs = plan_jobs(STUDY, ["trainer.max_steps=7"])
    assert [job.name for job in jobs][:3] == ["rte-none-seed3", "rte-none-seed4", "rte-mean-seed3"]
    assert len(jobs) == 8
    last = jobs[-1]
    line = "threads=1 encoder=tiny source=demo task=wic data.batch_size=16 isotropy=mean seed=4"
    alone = compose_run([*line.split(" "), "trainer.max_steps=7"])
    assert plain(last.cfg) == plain(alone)  # isotropy.seed follows the seed too
    named = check_parts(jobs)
    assert named[-1].folder == run_folder(alone, "demo-v1-seed0")
    assert len({job.folder for job in named}) == 8


def test_the_command_line_comes_last():
    jobs = plan_jobs(STUDY, ["threads=2", "data.batch_size=8", "output_dir=elsewhere"])
    assert {(job.cfg.threads, job.cfg.data.batch_size) for job in jobs} == {(2, 8)}
    assert str(study_folder(STUDY, jobs)) == "elsewhere/studies/one"


@pytest.mark.parametrize(
    ("more", "group", "told"),
    [
        (["logger=[wandb]"], "one", True),
        (["logger=[wandb]", "logger.wandb.group=mine"], "mine", False),
    ],
)
def test_runs_that_wandb_logs_are_grouped_by_the_study(more, group, told):
    pytest.importorskip("wandb")
    for job, plain_job in zip(plan_jobs(STUDY, more), plan_jobs(STUDY), strict=True):
        wandb = (job.cfg.logger or {}).get("wandb") or {}
        assert wandb.get("group") == group
        assert ("logger.wandb.group=one" in job.overrides) == told
        assert job.id == plain_job.id  # a logger is no content


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"overrides": ("encodr=tiny",)}, "all runs: no key encodr"),
        ({"tasks": {**STUDY.tasks, "wic": ("task=wicc",)}}, "task wic: task=wicc does not exist"),
        (
            {"methods": {**STUDY.methods, "mean": ("isotropy=men",)}},
            "method mean: isotropy=men does not",
        ),
        ({"overrides": ("threads=null",)}, "all runs: threads must be a number in a study"),
        ({"overrides": ("seed=5",)}, "all runs: seed=5 is for a single run"),
        (
            {"methods": {"none": ("isotropy=none",), "off": ()}},
            "rte-none and rte-off would compute",
        ),
        (
            {"methods": {"none": (), "mean": ("isotropy=mean", "output_dir=b")}},
            "output_dir must be one for all runs of a study, got ['b', 'runs']",
        ),
    ],
)
def test_refusals_say_which_runs(changes, said):
    with pytest.raises(PlanError) as told:
        plan_jobs(replace(STUDY, **changes))
    assert said in str(told.value)


def test_mistakes_of_all_runs_are_told_at_once_and_once():
    wrong = replace(STUDY, overrides=("sede=1",), tasks={"rte": ("task=rt",)})
    with pytest.raises(PlanError) as told:
        plan_jobs(wrong, ["threads=null", "isotropy.removal.rho=2.5e"])
    lines = str(told.value).splitlines()
    assert len(lines) == len(set(lines)) >= 4
    assert sum("no key sede" in line for line in lines) == 1


def test_one_mistake_in_one_pair_names_the_pair():
    tasks = {name: (f"task={name}",) for name in ("rte", "stsb", "wic")}
    methods = {"none": ("pooling=cls",), "spans": ("pooling=spans",)}
    jobs = plan_jobs(replace(STUDY, tasks=tasks, methods=methods))
    with pytest.raises(PlanError) as told:
        check_parts(jobs)
    lines = sorted(str(told.value).splitlines())
    assert [line.partition(":")[0] for line in lines] == ["rte-spans", "stsb-spans"]
