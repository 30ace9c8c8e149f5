"""Many metrics at once: names, extras, errors, and the same values as one at a time."""

from functools import partial
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from isotrain.geometry.cloud import Cloud
from isotrain.metrics.explained_variance import explained_variance
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.suite import HEADLINE, call_metric, find, flat, grouped_by, needs, suite
from tests.clouds import uneven
from tests.metrics.test_invariances import MARKED


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
    x = (uneven(n, d) * 10).to(dtype)
    single = {}
    for name in (*MARKED, "partition"):
        single |= flat(name, find(name)(x))
    found = suite(x, (*MARKED, "partition"))
    assert list(found) == list(single)
    for name, value in found.items():
        assert value.dtype == torch.float64
        assert value.ndim == 0
        torch.testing.assert_close(
            value, single[name], rtol=1e-12, atol=1e-14, msg=lambda m, k=name: f"{k}: {m}"
        )


def test_headline_is_the_default():
    x = uneven()
    assert tuple(suite(x)) == tuple(suite(x, HEADLINE))
    train = OmegaConf.load(Path(__file__).parents[2] / "conf" / "train.yaml")
    (watched,) = (entry.metric for entry in train.defaults if "metric" in entry)
    # A run watches what suite gives, the coordinates, and what needs labels or a step 0.
    assert set(watched) == {*HEADLINE, "outlier_dims", "scatter_ratio", "cosine_drift"}
    assert "isoscore" in HEADLINE
    assert suite(x)["mean_cosine"].item() == mean_cosine(x).item()


def test_functions_and_partials_by_name():
    x = uneven()
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


def test_extras_reach_those_who_need_them():
    x, other = uneven(40), uneven(40, seed=1)
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
def test_what_a_metric_needs_is_in_its_signature(function, need):
    assert needs(function) == needs(partial(function)) == need
    assert needs(find("isoscore")) == "rows"
    with pytest.raises(TypeError, match=f"missing 1 required positional argument: '{need}'"):
        suite(uneven(), {"odd": function})


def test_groups_are_words_unless_the_signature_says_sentences():
    sentences = find("intra_sentence_similarity")
    assert [grouped_by(f) for f in (spread, partial(spread, minimum=3))] == ["words"] * 2
    assert [grouped_by(f) for f in (sentences, partial(sentences, seed=1))] == ["sentences"] * 2


@pytest.mark.parametrize("name", ["isocore", "", "isoscore.isoscore", "suite", "../isoscore"])
def test_unknown_names_are_answered_with_the_nearest(name):
    hint = "did you mean isoscore" if name == "isocore" else "is no metric"
    with pytest.raises(ValueError, match=hint):
        suite(uneven(), ["isoscore", name])


def test_an_error_of_a_metric_begins_with_its_name():
    constant = torch.full((9, 4), 0.1)
    with pytest.raises(ValueError, match=r"^alpha_req: a slope needs at least 3"):
        suite(constant, ["isoscore", "alpha_req"])
    with pytest.raises(ValueError, match=r"^mine: .*at least 4 rows, got 3"):
        suite(uneven(3), {"mine": find("isoscore_corrected")})


def test_a_metric_gets_the_cloud_where_its_signature_says_so():
    x = uneven()
    for shares in (mean_cosine, partial(explained_variance, center=False), find("two_nn")):
        given = Cloud(x)
        call_metric(shares, given)
        assert set(vars(given)) > set(vars(Cloud(x))), "moments or rows are kept for the next one"

    def unlike(x: "PointCloud"):  # noqa: F821
        return x

    for own in (lambda x: x, lambda *x: x[0], unlike, partial(moved, reference=x)):
        assert torch.equal(call_metric(own, Cloud(x)), own(x))
