"""The studies of the package, planned for encoders and data that they were not written for."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import t

from isotrain.studies.definition import load_study
from isotrain.studies.plan import plan_jobs

CONF = Path(__file__).parents[2] / "conf" / "study"
N_RUNS = {  # tasks × arms × seeds
    "does_isotropy_help": 2 * 4 * 8,
    "where": 1 * 15 * 3,
    "how_strong": 1 * 19 * 3,
    "freezing": 7 * 3 * 3,
    "where_isotropy_pays": 5 * 11 * 3,
    "where_isotropy_pays_rates": 3 * 16 * 3,
    "where_isotropy_pays_confirmed": 5 * 3 * 10,
    "where_isotropy_pays_scaled": 2 * 5 * 8,
    "where_isotropy_pays_depth": 7 * 3 * 5,
    "dose_response": 3 * 20 * 3,
    "where_isotropy_pays_untrained": 4 * 3 * 10,
    "head_rates": 3 * 10 * 3,
    "own_embeddings": 3 * 18 * 3,
    "own_embeddings_heads": 2 * 7 * 3,
    "own_embeddings_dense": 1 * 10 * 3,
    "own_embeddings_distilled": 3 * 4 * 3,
    "own_embeddings_confirmed": 2 * 5 * 10,
    "own_embeddings_confirmed_wic": 1 * 4 * 20,
    "published_fine_tuning": 2 * 4 * 10,
}


@pytest.fixture(params=sorted(N_RUNS))
def study(request):
    """A study with one of its seeds."""
    whole = load_study(request.param)
    assert len(whole.tasks) * len(whole.arms) * len(whole.seeds) == N_RUNS[request.param]
    return replace(whole, seeds=whole.seeds[:1])


@pytest.mark.slow
def test_it_plans_for_a_small_encoder_and_local_data(study, data_dir):
    jobs = plan_jobs(study, ["encoder=minilm", "source=local", f"source.root={data_dir}"])
    assert len(jobs) == len(study.tasks) * len(study.arms)
    assert len({job.id for job in jobs}) == len(jobs)


def test_every_arm_is_compared_with_no_layer(study):
    only_scored = "training.test_untrained=true"
    assert [key for key in study.arms[study.baseline] if key != only_scored] == ["isotropy=none"]
    assert len(study.arms) >= 2


@pytest.mark.parametrize("name", sorted(N_RUNS))
def test_the_estimate_counts_the_runs(name):
    opening = re.match(r"(#.*\n)+", (CONF / f"{name}.yaml").read_text("utf-8"))[0]
    assert re.search(rf"\b{N_RUNS[name]} runs", opening)


@pytest.mark.parametrize("name", sorted(N_RUNS))
def test_what_it_compares_can_be_shown_or_it_says_that_it_explores(name):
    """At Holm's first step: by the smallest p value of n flips, or below 8 by what t asks for."""
    study = load_study(name)
    n, m = len(study.seeds), len(study.arms) - 1
    in_sd = t.ppf(1 - 0.025 / m, n - 1) / n**0.5  # the least significant mean difference
    can_show = 2 ** (1 - n) * m <= 0.05 if n >= 8 else in_sd < 5
    assert can_show != ("Exploratory" in (CONF / f"{name}.yaml").read_text("utf-8"))


def test_small_sets_have_epochs_for_all_steps():
    study = load_study("where_isotropy_pays")
    jobs = plan_jobs(
        replace(study, seeds=(3,)), ["encoder=tiny", "encoder.n_blocks=2", "source=demo"]
    )
    planned = [(cfg.data.n_train, cfg.trainer) for cfg in (job.cfg for job in jobs)]
    assert {n_train for n_train, _ in planned} == {100, 300, 1000, None}
    for n_train, trainer in planned:
        assert -(-(n_train or 3000) // 32) * trainer.max_epochs >= trainer.max_steps
