"""What moves a metric and what does not, and its gradient, for every metric."""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.metrics.suite import find, flat, needs
from tests.clouds import light, uneven

METRICS = Path(__file__).parents[2] / "isotrain" / "metrics"
EVERY = sorted({file.stem for file in METRICS.glob("*.py")} - {"__init__", "suite"})


def extras(function, n, other):
    """What a metric needs beside the embeddings."""
    number_N = torch.arange(n)
    offered = {"labels": number_N % 3, "groups": number_N % 4}
    offered |= {"reference": other, "positives": other}
    return {need: offered[need] for need in [needs(function)] if need != "rows"}


# --- what moves a metric and what does not ----------------------------------------------------
class Case(NamedTuple):
    """A metric and what does not move it."""

    function: object
    invariant: frozenset
    tolerance: float = 1e-9
    is_alone: bool = False  # the other embeddings stay where they are

    def __call__(self, x, other):
        found = self.function(x, **extras(self.function, len(x), other))
        values = {key: value for key, value in flat("v", found).items() if "shuffled" not in key}
        return torch.stack(list(values.values()))


CENTRED = frozenset({"rotation", "translation", "scale", "duplication", "row order"})
ORIGIN = CENTRED - {"translation"}
CONE = frozenset({"rotation", "scale", "lengths", "row order"})
LABELLED = CENTRED - {"duplication"}


def case(name, invariant, tolerance=1e-9, is_alone=False, **options):
    return Case(partial(find(name), **options), frozenset(invariant), tolerance, is_alone)


BOTH = ("participation_ratio", "effective_rank", "spectral_entropy", "stable_rank")
BOTH += ("explained_variance", "condition", "alpha_req")
OF_MOMENTS = {
    "isoscore": case("isoscore", CENTRED),
    "isoscore_corrected": case("isoscore_corrected", LABELLED),
    "mean_cosine": case("mean_cosine", CONE),
    "rankme": case("rankme", ORIGIN),
    "outlier_dims": case("outlier_dims", {"scale", "row order"}),
    **{name: case(name, CENTRED, center=True) for name in BOTH},
    **{f"{name} origin": case(name, ORIGIN, center=False) for name in BOTH},
}
OF_ROWS = {
    "alignment": case("alignment", CONE),
    "alignment 0.7": case("alignment", CONE, alpha=0.7),
    "cosine_drift": case("cosine_drift", CONE),
    "linear_cka": case("linear_cka", LABELLED - {"row order"}, is_alone=True),
    "linear_cka debiased": case(
        "linear_cka", LABELLED - {"row order"}, is_alone=True, debiased=True
    ),
    "scatter_ratio": case("scatter_ratio", LABELLED - {"row order"}),
    "label_silhouette": case("label_silhouette", LABELLED - {"row order"}),
    "linear_probe_accuracy": case(
        "linear_probe_accuracy", {"rotation", "translation", "scale"}, n_folds=3
    ),
    "removed_label_scatter": case("removed_label_scatter", LABELLED - {"row order"}, 1e-6),
    "self_similarity": case("self_similarity", CONE - {"row order"}, min_count=3),
    "intra_sentence_similarity": case("intra_sentence_similarity", {"rotation", "scale"}),
    "s_intra": case("s_intra", CONE - {"row order"}),
    "s_intra centre": case("s_intra", {"rotation", "translation", "scale"}, adjust="centre"),
    "s_inter": case("s_inter", CONE - {"row order"}),
    "s_inter centre": case("s_inter", {"rotation", "translation", "scale"}, adjust="centre"),
    "max_explainable_variance": case(
        "max_explainable_variance", {"rotation", "scale"}, n_per_group=3
    ),
    "max_explainable_variance centred": case(
        "max_explainable_variance", {"rotation", "translation", "scale"}, n_per_group=3, center=True
    ),
    "lid": case("lid", LABELLED, 1e-6, n_neighbors=5),
    "lid cosine": case("lid", CONE, 1e-6, n_neighbors=5, distance="cosine"),
    "two_nn": case("two_nn", LABELLED, 1e-6),
    "uniformity": case("uniformity", CONE),
    "isoscore_star": case("isoscore_star", CENTRED, shrinkage=0.3),
    "cluster_label_nmi": case("cluster_label_nmi", {"translation", "scale"}, n_clusters=3),
    "best_dimension_accuracy": case("best_dimension_accuracy", {"translation"}, n_folds=3),
    "partition": case("partition", {"rotation", "row order"}, 1e-8),
    "partition_null": case("partition_null", {"rotation", "row order"}),
}
MARKED = sorted({name.split()[0] for name in OF_MOMENTS})
CASES = OF_MOMENTS | OF_ROWS
SCALED = sorted(name for name, c in CASES.items() if "scale" in c.invariant and "mix" not in name)
over_cases = pytest.mark.parametrize("name", sorted(CASES))


def moved(x, seed):
    """The same cloud after each of the changes, by name."""
    n, d = x.shape
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {
        "rotation": x @ torch.linalg.qr(draw(d, d))[0],
        "translation": x + 5.0 * draw(d),
        "scale": x * -1e3 if seed % 2 else x * 1e-3,
        "lengths": x * 10.0 ** (0.4 * draw(n, 1)),
        "duplication": x.repeat(3, 1),
        "row order": x[torch.randperm(n, generator=generator)],
        "column order": x[:, torch.randperm(d, generator=generator)],
    }


def test_every_metric_is_declared():
    assert set(EVERY) == {name.split()[0] for name in CASES}


@over_cases
@given(st.integers(24, 40), st.integers(4, 40), st.integers(0, 10_000))
@light
def test_what_does_not_move_a_metric(name, n, d, seed):
    _, invariant, tolerance, is_alone = CASES[name]
    x, other = uneven(n, d, seed), uneven(n, d, seed + 1)
    asked = invariant | ({"column order"} if "rotation" in invariant else set())
    if name.split()[0] in ("rankme", "condition") and n <= d:
        asked = asked - {"duplication"}  # they count the rows that could have been
    changes, others = moved(x, seed), moved(other, seed)
    value = CASES[name](x, other)
    for change in asked:
        found = CASES[name](changes[change], other if is_alone else others[change])
        torch.testing.assert_close(
            found, value, rtol=tolerance, atol=tolerance, msg=lambda m, c=change: f"{c}: {m}"
        )


@pytest.mark.parametrize("name", sorted(OF_MOMENTS))
def test_what_moves_it_is_not_declared(name):
    """The other direction: no metric is deaf to what it is said to hear."""
    x = uneven(30, 8, seed=3)
    changes, value = moved(x, 3), CASES[name](x, x)
    left = {"rotation", "translation", "lengths", "duplication"} - CASES[name].invariant
    for change in left:
        found = CASES[name](changes[change], x)
        assert float((found - value).abs().max()) > 1e-4, change


NAMED = ("scatter_ratio", "label_silhouette", "removed_label_scatter", "self_similarity")
NAMED += ("intra_sentence_similarity", "s_intra", "s_intra centre")


@pytest.mark.parametrize("name", NAMED)
def test_names_of_classes_and_order_of_rows_say_nothing(name):
    x, function = uneven(34, 6, seed=4), CASES[name].function
    order = torch.randperm(34, generator=torch.Generator().manual_seed(0))
    ((need, numbers),) = extras(function, 34, None).items()
    value = CASES[name](x, x)
    for rows, given_numbers in ((x[order], numbers[order]), (x, 2**40 - 3 * numbers)):
        found = flat("v", function(rows, **{need: given_numbers}))
        kept = torch.stack([v for key, v in found.items() if "shuffled" not in key])
        torch.testing.assert_close(kept, value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("sign", [1, -1])
def test_extreme_scales(name, sign):
    scale = 10.0 ** (sign * (150 if name in OF_MOMENTS else 200))
    x, other = uneven(30, 6, seed=4), uneven(30, 6, seed=5)
    found = CASES[name](x * scale, other if CASES[name].is_alone else other * scale)
    torch.testing.assert_close(found, CASES[name](x, other), rtol=1e-9, atol=1e-12)


@over_cases
@pytest.mark.parametrize(("n", "d"), [(60, 16), (16, 20)])
def test_a_mean_of_norm_16000_keeps_the_digits(name, n, d):
    """Centred metrics as without it; the others as in exact arithmetic on the far rows."""
    metric = CASES[name]
    x = uneven(n, d, seed=5, mean=0.0) / 4.0
    x = (x * 2.0**30).round() / 2.0**30  # so that adding the mean rounds nothing
    far, other = x + 4000.0, uneven(n, d, seed=6)
    if "translation" in metric.invariant:
        tolerance = 1e-9
        torch.testing.assert_close(
            metric(far, other), metric(x, other), rtol=tolerance, atol=10 * tolerance
        )
    else:
        single = far.float()  # seven digits of the scatter are gone, in the rows themselves
        found, wanted = metric(single, other), metric(single.double(), other)
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
        assert bool(metric(far, other).isfinite().all())


# --- gradients --------------------------------------------------------------------------------
FLAT = (
    "best_dimension_accuracy",
    "cluster_label_nmi",
    "linear_probe_accuracy",
    "label_silhouette",
    "partition",
    "partition_null",
)
FLAT += ("lid", "two_nn", "removed_label_scatter", "outlier_dims")  # none, or tests of their own


@pytest.mark.parametrize("name", [n for n in sorted(CASES) if not set(n.split()) & set(FLAT)])
def test_gradient_equals_differences(name):
    shapes = [(5, 8), (8, 5)] if name in OF_MOMENTS else [(12, 3)]
    for n, d in shapes:
        x, other = uneven(n, d, seed=3), uneven(n, d, seed=4).requires_grad_()

        def value(x, other, function=CASES[name].function):
            found = flat("v", function(x, **extras(function, len(x), other)))
            return tuple(v for key, v in found.items() if v.requires_grad)

        assert torch.autograd.gradcheck(value, (x.requires_grad_(), other))
