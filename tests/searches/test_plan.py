"""A search judged before anything starts."""

from __future__ import annotations

import pytest

from isotrain.jobs.stored import PlanError
from isotrain.studies.search import load_search, search_names
from isotrain.studies.search_plan import plan_search, runs_of


def refusal(fake, *overrides, **keys):
    fake.says(**keys)
    with pytest.raises(PlanError) as told:
        fake.plan(*overrides)
    assert not fake.runs.exists()
    return str(told.value).splitlines()


def test_the_whole_space_is_judged_with_every_mistake_at_once(fake):
    lines = refusal(
        fake,
        "encodr=tiny",
        space="{isotropy: [clip, cut_tail], isotropy.n_components: {low: 1, high: 3}, "
        "data.batch_size: {low: 0, high: 32}, trainig.patience: [1, 2]}",
    )
    text = "\n".join(lines)
    assert "no key encodr; did you mean encoder?" in text
    assert (
        "with isotropy=cut_tail: isotropy=cut_tail does not exist; did you mean cut_tails?" in text
    )
    assert "data.batch_size must be at least 1, got 0" in text
    assert "no key trainig.patience" in text
    assert len(lines) == len(set(lines))


def test_a_bad_upper_end_is_told_with_its_value(fake):
    (line,) = refusal(fake, space="{isotropy.removal.strength: [0.5, 1.5]}", overrides="[task=rte, "
                      "encoder=tiny, source=demo, isotropy=clip]")  # fmt: skip
    assert line.startswith(
        "with isotropy.removal.strength=1.5: isotropy.removal.strength must be at most 1"
    )


@pytest.mark.parametrize(
    ("overrides", "keys", "said"),
    [
        (["optimizer.lr=0.1"], {}, "optimizer.lr is in the space, and is fixed by an override"),
        ([], {"space": "{seed: [1, 2]}"}, "space.seed: a search has its own list, seeds"),
        (["seed=3"], {}, "seed=3 is for a single run; a search has its own list"),
        (["rerun=true"], {}, "rerun=true would forget what is done"),
        (["threads=null"], {}, "threads must be a number"),
        ([], {"space": "{report: [true, false]}"}, "report=true and report=false compute the same"),
        ([], {"space": "{cache_dir: [a, b]}"}, "cache_dir=a and cache_dir=b compute the same"),
        (
            [],
            {"space": "{task: [rte, wic]}", "overrides": "[encoder=tiny, source=demo]"},
            "scores of several tasks cannot be ranked",
        ),
        (
            [],
            {"objective": "test/accuracy"},
            "the test split is not for choosing; use val/accuracy",
        ),
        ([], {"objective": "val/loss"}, "direction is missing: is val/loss to be max or min?"),
        (["source=local", "source.root=/nowhere"], {}, "/nowhere"),
    ],
)
def test_what_a_search_may_not_be(fake, overrides, keys, said):
    assert any(said in line for line in refusal(fake, *overrides, **keys))


def test_the_objective_and_its_direction_are_the_tasks_or_the_files(fake):
    assert fake.plan()[4:6] == ("val/accuracy", "max")
    fake.says(objective="val/loss", direction="min")
    assert fake.plan()[4:6] == ("val/loss", "min")


def test_an_override_may_build_on_an_earlier_one(fake):
    plan = fake.plan("+optimizer.amsgrad=true", "optimizer.amsgrad=false", "++threads=2")
    jobs, mistakes = runs_of(plan, {"optimizer.lr": 0.003})
    assert mistakes == []
    assert (jobs[0].cfg.optimizer.amsgrad, jobs[0].cfg.threads) == (False, 2)


def test_the_runs_of_a_trial_have_its_values_and_a_seed_each(fake):
    fake.says(seeds="[2, 5]")
    plan = fake.plan("data.batch_size=16")
    jobs, mistakes = runs_of(plan, {"optimizer.lr": 0.003})
    assert mistakes == []
    assert [job.cfg.seed for job in jobs] == [2, 5]
    assert {job.cfg.optimizer.lr for job in jobs} == {0.003}
    assert {job.cfg.data.batch_size for job in jobs} == {16}
    assert {job.cfg.threads for job in jobs} == {1}
    assert {job.arm for job in jobs} == {"few"}
    assert jobs[1].overrides[-2:] == ["optimizer.lr=0.003", "seed=5"]
    assert {job.search for job in jobs} == {"few"}, "its runs are no results"
    assert plan.folder == fake.folder


@pytest.mark.slow
def test_shipped_searches_can_run():
    for name in search_names():
        plan = plan_search(load_search(name), ["source=demo"] if name != "smoke" else [])
        assert plan.objective in ("val/accuracy", "val/spearman")
