"""Many metrics at once: names, extras, errors, and the same values as one at a time."""

from functools import partial
from pathlib import Path
from typing import Annotated

import pytest
import torch
from omegaconf import OmegaConf

from isotrain.geometry.cloud import Cloud
from isotrain.metrics.explained_variance import explained_variance
from isotrain.metrics.isoscore_star import isoscore_star_of_rows
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.suite import HEADLINE, call_metric, find, flat, grouped_by, needs, suite

MOMENTS = (
    "isoscore",
    "isoscore_corrected",
    "mean_cosine",
    "participation_ratio",
    "effective_rank",
    "rankme",
    "spectral_entropy",
    "stable_rank",
    "explained_variance",
    "condition",
    "alpha_req",
    "outlier_dims",
)


def cloud(n=40, d=6, seed=0, mean=0.5):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.3, 2.0, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


def between(x, labels):
    return (x[labels == 0].mean() - x[labels == 1].mean()).double()


def spread(x, groups, minimum=2):
    return {"n": groups.unique().numel() * torch.ones(()), "least": torch.tensor(float(minimum))}


def moved(x, reference):
    return (x - reference).abs().amax()


def closeness(x, positives):
    return (x * positives).sum(dim=1).mean()


@pytest.mark.parametrize(("n", "d"), [(40, 6), (12, 30), (300, 5)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64])
def test_the_values_of_single_calls(n, d, dtype):
    x = (cloud(n, d) * 10).to(dtype)
    single = {}
    for name in (*MOMENTS, "partition"):
        single |= flat(name, find(name)(x))
    found = suite(x, (*MOMENTS, "partition"))
    assert list(found) == list(single)
    for name, value in found.items():
        assert value.dtype == torch.float64
        assert value.ndim == 0
        torch.testing.assert_close(
            value, single[name], rtol=1e-12, atol=1e-14, msg=lambda m, k=name: f"{k}: {m}"
        )


def test_order_of_metrics_does_not_matter():
    x = cloud()
    forth, back = suite(x, MOMENTS), suite(x, MOMENTS[::-1])
    assert {k: v.item() for k, v in forth.items()} == {k: v.item() for k, v in back.items()}


def test_headline_is_the_default():
    x = cloud()
    assert tuple(suite(x)) == tuple(suite(x, HEADLINE))
    train = OmegaConf.load(Path(__file__).parents[2] / "conf" / "train.yaml")
    (watched,) = (entry.metric for entry in train.defaults if "metric" in entry)
    # A run watches what suite gives, the coordinates, and what needs labels or a step 0.
    assert set(watched) == {*HEADLINE, "outlier_dims", "scatter_ratio", "cosine_drift"}
    assert "isoscore" in HEADLINE
    assert suite(x)["mean_cosine"].item() == mean_cosine(x).item()


def test_functions_and_partials_by_name():
    x = cloud()
    found = suite(
        x,
        {
            "anisotropy": mean_cosine,
            "top": partial(explained_variance, n_directions=[2], center=False),
            "mine": lambda rows: rows.sum(),
        },
    )
    assert list(found) == ["anisotropy", "top_2", "mine"]
    assert found["anisotropy"].item() == mean_cosine(x).item()
    assert found["top_2"].item() == explained_variance(x, [2], center=False)["2"].item()
    assert found["mine"].item() == x.sum().item()


def test_nothing_asked_and_any_iterable():
    assert suite(cloud(), []) == {}
    assert list(suite(cloud(), (name for name in ("isoscore", "rankme")))) == ["isoscore", "rankme"]


def test_extras_reach_those_who_need_them():
    x, other = cloud(), cloud(seed=1)
    labels = torch.arange(40) % 2
    functions = {"b": between, "s": spread, "m": moved, "c": closeness, "i": find("isoscore")}
    found = suite(
        x,
        {**functions, "s": partial(spread, minimum=3)},
        labels=labels,
        groups=torch.arange(40) // 4,
        reference=other,
        positives=-x,
    )
    assert list(found) == ["b", "s_n", "s_least", "m", "c", "i"]
    assert found["b"].item() == between(x, labels).item()
    assert found["s_n"].item() == 10
    assert found["s_least"].item() == 3
    assert found["m"].item() == moved(x, other).item()
    assert found["c"].item() == closeness(x, -x).item()


@pytest.mark.parametrize(
    ("function", "need"),
    [(between, "labels"), (spread, "groups"), (moved, "reference"), (closeness, "positives")],
)
def test_a_missing_extra_is_told_before_anything_is_measured(function, need):
    assert needs(function) == need
    assert needs(partial(function)) == need

    def not_yet(x):
        pytest.fail("measured")

    with pytest.raises(ValueError, match=f"odd needs {need}; pass {need}="):
        suite(cloud(), {"first": not_yet, "odd": function})
    assert needs(find("isoscore")) == "rows"


def test_groups_are_words_unless_the_signature_says_sentences():
    def inside(x, groups: Annotated[torch.Tensor, "sentences"], power=1.0):
        return x.sum()

    assert [grouped_by(f) for f in (spread, partial(spread, minimum=3))] == ["words"] * 2
    assert [grouped_by(f) for f in (inside, partial(inside, power=2.0))] == ["sentences"] * 2
    assert grouped_by(find("s_inter")) == "words"


@pytest.mark.parametrize(
    "name", ["isocore", "", "isoscore.isoscore", "suite", "streaming", "../isoscore"]
)
def test_unknown_names(name):
    with pytest.raises(ValueError, match="is no metric"):
        suite(cloud(), ["isoscore", name])


def test_isoscore_star_by_its_name():
    """Its file is a metric like the others, with rows as the reference."""
    x, reference = cloud(), cloud(seed=2)
    found = suite(x, ["isoscore_star"], reference=reference)["isoscore_star"]
    assert found.item() == pytest.approx(isoscore_star_of_rows(x, reference).item(), abs=1e-14)
    with pytest.raises(ValueError, match="isoscore_star needs reference"):
        suite(x, ["isoscore_star"])
    named = suite(x, {"star": isoscore_star_of_rows}, reference=reference)
    assert named["star"].item() == found.item()


def test_what_a_metric_refuses_begins_with_its_name():
    constant = torch.full((9, 4), 0.1)
    with pytest.raises(ValueError, match=r"^alpha_req: a slope needs at least 3"):
        suite(constant, ["isoscore", "alpha_req"])
    with pytest.raises(ValueError, match=r"^mine: .*at least 4 rows, got 3"):
        suite(cloud(3), {"mine": find("isoscore_corrected")})
    with pytest.raises(ValueError, match=r"^ev: n_directions"):
        suite(cloud(), {"ev": partial(explained_variance, n_directions=[0])})


def test_bad_rows_are_refused():
    x = cloud()
    x[31, 2] = float("nan")
    with pytest.raises(ValueError, match="row 31"):
        suite(x, ["isoscore"])
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        suite(cloud(1), ["isoscore"])
    with pytest.raises(ValueError, match=r"\[N, D\]"):
        suite(torch.zeros(4), ["isoscore"])


def test_a_cloud_instead_of_rows():
    x = cloud()
    for names in (MOMENTS, HEADLINE):
        found = suite(Cloud(x), names)
        assert {k: v.item() for k, v in found.items()} == pytest.approx(
            {k: v.item() for k, v in suite(x, names).items()}, rel=1e-12
        )


def test_a_metric_gets_the_cloud_where_its_signature_says_so():
    x = cloud()
    for shares in (mean_cosine, partial(explained_variance, center=False), find("two_nn")):
        given = Cloud(x)
        call_metric(shares, given)
        assert set(vars(given)) > set(vars(Cloud(x))), "moments or rows are kept for the next one"

    def unlike(x: "PointCloud"):  # noqa: F821
        return x

    for own in (lambda x: x, lambda *x: x[0], unlike, partial(moved, reference=x)):
        assert torch.equal(call_metric(own, Cloud(x)), own(x))


def test_a_cloud_of_moments_has_what_follows_from_moments():
    x = cloud()
    known = Cloud.from_moments(Cloud(x).moments)
    found = suite(known, MOMENTS)
    assert {k: v.item() for k, v in found.items()} == pytest.approx(
        {k: v.item() for k, v in suite(x, MOMENTS).items()}, rel=1e-9
    )
    with pytest.raises(ValueError, match=r"^mine: this metric has to see the rows"):
        suite(known, {"mine": lambda cloud: cloud.rows.sum()})
    with pytest.raises(ValueError, match=r"^partition: .*rows"):
        suite(known, ["partition"])


def test_nothing_is_kept_after_a_call_or_an_error():
    x = cloud()
    first = suite(x, ["isoscore"])["isoscore"].item()
    with pytest.raises(ValueError, match="alpha_req"):
        suite(torch.ones(5, 3), ["alpha_req"])
    x[:, 0] *= 5.0  # in place: the same tensor, other rows
    assert suite(x, ["isoscore"])["isoscore"].item() != first


def test_all_refusals_are_told_together_or_skipped():
    flat = torch.randn(50, 1, generator=torch.Generator().manual_seed(0)) @ torch.ones(1, 8)
    asked = ["isoscore", "alpha_req", "lid", "mean_cosine"]
    with pytest.raises(ValueError, match=r"alpha_req: .*; lid: .*"):
        suite(flat, asked)
    assert set(suite(flat, asked, refused="skip")) == {"isoscore", "mean_cosine"}


def test_two_values_of_one_name_are_refused():
    twice = {"a": lambda x: {"1": x.sum()}, "a_1": lambda x: x.sum()}
    with pytest.raises(ValueError, match="named a_1"):
        suite(cloud(), twice)


def test_a_wrong_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean isoscore"):
        suite(cloud(), ["IsoScore"])
    with pytest.raises(ValueError, match=r"pass \['isoscore'\]"):
        suite(cloud(), "isoscore")


def test_estimates_come_with_their_error():
    found = suite(torch.randn(200, 4, generator=torch.Generator().manual_seed(0)), ["lid"])
    assert set(found) == {"lid_value", "lid_standard_error", "lid_n_queries"}
