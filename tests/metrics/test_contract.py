"""What holds for every metric: bad input, odd input, what moves it, gradients, stored values."""

import json
import warnings
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.geometry.cloud import Cloud
from isotrain.metrics.isoscore_star import isoscore_star, isoscore_star_of_rows
from isotrain.metrics.suite import find, flat, needs
from tests.metrics.clouds import cloud, light

METRICS = Path(__file__).parents[2] / "isotrain" / "metrics"
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "clouds.json").read_text())
EVERY = sorted({file.stem for file in METRICS.glob("*.py")} - {"__init__", "suite", "streaming"})
MARKED = sorted(p.stem for p in METRICS.glob("*.py") if "\n@from_moments" in p.read_text())
LEAST = {"isoscore_corrected": 4, "label_silhouette": 3, "two_nn": 3}
LEAST |= {"alignment": 1, "cosine_drift": 1, "partition": 1}
uneven = partial(cloud, mean=0.5, low=0.3, high=2.0)
over_every = pytest.mark.parametrize("name", EVERY)
over_marked = pytest.mark.parametrize("name", MARKED)


def extras(function, n, other):
    """What a metric needs beside the embeddings."""
    number_N = torch.arange(n)
    offered = {"labels": number_N % 3, "groups": number_N % 4}
    offered |= {"reference": other, "positives": other}
    return {need: offered[need] for need in [needs(function)] if need != "rows"}


def stacked(name, found):
    return torch.stack(list(flat(name, found).values()))


def measured(name, x, other=None):
    """The values of any metric; `other` embeddings to compare with are `x` turned round."""
    options = {"n_neighbors": 5} if name == "lid" else {}
    if name in MARKED:
        return stacked(name, find(name)(x))
    other = x.flip(-1) if other is None else other
    needed = extras(find(name), len(x) if x.ndim else 0, other)
    if "labels" in needed:
        needed["labels"] %= 2
    return stacked(name, find(name)(x, **needed, **options))


# --- bad input --------------------------------------------------------------------------------


@over_every
def test_not_finite(name):
    x, other = uneven(300, 4), uneven(300, 4, seed=1)
    for value in (float("nan"), float("inf"), -float("inf")):
        x[271, 3] = x[290, 0] = value
        with pytest.raises(ValueError, match=r"2 of 300 rows.*row 271.*drop those rows"):
            measured(name, x, other)
    half = uneven(20, 4).half()
    half[3, 0], half[9, 0] = float("inf"), -float("inf")
    with pytest.raises(ValueError, match="row 3"):
        measured(name, half, uneven(20, 4))


@pytest.mark.parametrize("name", [n for n in EVERY if needs(find(n)) in ("reference", "positives")])
def test_the_other_embeddings_are_finite_and_paired(name):
    x, bad = uneven(9, 3), uneven(9, 3)
    bad[4, 0] = float("nan")
    with pytest.raises(ValueError, match="row 4"):
        measured(name, x, bad)
    if name != "isoscore_star":
        with pytest.raises(ValueError, match="got"):
            measured(name, x, uneven(8, 3))


@over_every
def test_wrong_rank(name):
    for shape in ((), (4,), (2, 3, 4), (0,)):
        with pytest.raises(ValueError, match=r"\[N, D\], got .*flatten"):
            measured(name, torch.zeros(shape), uneven(4, 3))


@over_every
def test_too_few_rows_and_no_dimension(name):
    least = LEAST.get(name, 2)
    for n in range(least):
        with pytest.raises(ValueError, match=f"at least {least} rows, got {n}; measure more"):
            measured(name, torch.ones(n, 3))
    with pytest.raises(ValueError, match="at least one dimension"):
        measured(name, torch.zeros(7, 0))


NEEDING = [(n, needs(find(n))) for n in EVERY if needs(find(n)) in ("labels", "groups")]


@pytest.mark.parametrize(("name", "need"), NEEDING)
def test_labels_and_groups_are_one_class_number_per_embedding(name, need):
    x, numbers = uneven(30, 3), torch.arange(30) % 2
    wrong = [(numbers[1:], r"29")]
    if need == "groups":
        wrong += [(numbers.double(), "integers, got torch.float64"), (numbers > 0, "integers")]
    else:
        wrong += [(numbers + 0.5, "slice a score"), (numbers * 0, "two classes")]
    for values, words in wrong:
        with pytest.raises(ValueError, match=words):
            find(name)(x, **{need: values})


# --- odd input --------------------------------------------------------------------------------


@over_every
def test_every_type_gives_the_value_of_its_double(name):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.int32):
        x = (uneven(60, 6) * 10.0).to(dtype)
        found = measured(name, x)
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, measured(name, x.double()), rtol=1e-12, atol=1e-12)


@over_every
def test_autocast_seeds_and_input_are_left_alone(name):
    x = uneven(60, 6).float()
    kept, state, value = x.clone(), torch.get_rng_state(), measured(name, x)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(measured(name, x), value)
    assert torch.equal(x, kept)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(5)
    assert torch.equal(measured(name, x), value)


@over_marked
@pytest.mark.parametrize(("n", "d"), [(4, 7), (300, 3)])
@pytest.mark.parametrize("value", [0.0, 0.1, -16_000.3, 1e-300, 1e300])
def test_constant_rows_are_refused_or_without_scatter(name, n, d, value):
    x = torch.full((n, d), value, dtype=torch.float64)
    if name == "alpha_req":
        with pytest.raises(ValueError, match="got 0; measure more rows"):
            find(name)(x)
        return
    found = measured(name, x)
    if name == "outlier_dims":
        assert bool(found.isfinite().all())
        return
    cap, cone = 1.0 / (d * 2.0**-52), float(value != 0)
    wanted = {"condition": cap, "mean_cosine": cone, "rankme": cone}.get(name, 0.0)
    assert found.tolist() == pytest.approx([wanted] * len(found), abs=1e-4)


@over_marked
def test_any_shape_is_finite_or_refused(name):
    for n, d in [(n, d) for n in (2, 4, 9) for d in (1, 2, 6)]:
        few = 3 if name == "alpha_req" else 4 if name == "isoscore_corrected" else 0
        if n < few or (name == "alpha_req" and min(n - 1, d) < 3):
            with pytest.raises(ValueError, match="measure more"):
                measured(name, uneven(n, d))
        else:
            assert bool(measured(name, uneven(n, d)).isfinite().all()), (n, d)
    for n, d in ((5, 30), (29, 30), (30, 30), (31, 30), (255, 3), (257, 3)):
        found = measured(name, uneven(n, d))
        assert found.dtype == torch.float64
        assert bool(found.isfinite().all()), (n, d)


@over_marked
def test_zero_rows_and_duplicates_leave_no_direction_of_rounding(name):
    zeros = uneven(30, 5)
    zeros[::3] = 0.0
    assert bool(measured(name, zeros).isfinite().all())
    x = uneven(5, 8).repeat(12, 1)
    found = measured(name, x)
    assert bool(found.isfinite().all())
    if name in ("isoscore", "participation_ratio", "effective_rank", "alpha_req", "stable_rank"):
        torch.testing.assert_close(found, measured(name, x[:5]), rtol=1e-9, atol=1e-12)


@over_marked
def test_float16_at_its_ends_and_other_layouts(name):
    """Entries whose squares leave float16 by far; columns first; a part of a wider tensor."""
    half = uneven(40, 6).mul(2e4).clamp(-6e4, 6e4).half()
    exact = measured(name, half.double())
    torch.testing.assert_close(measured(name, half), exact, rtol=1e-12, atol=0.0)
    x = uneven(40, 6).float()
    for same in (x.T.contiguous().T, torch.nn.functional.pad(x, (3, 2))[:, 3:9]):
        torch.testing.assert_close(measured(name, same), measured(name, x), rtol=1e-12, atol=1e-14)


@over_marked
@pytest.mark.parametrize(("n", "d"), [(7, 5), (5, 7)])
def test_the_graph_is_kept_where_asked_and_no_warning_is_given(name, n, d):
    """Torch warns of float(tensor) with a graph once a process; here, each time."""
    x = uneven(n, d).requires_grad_()
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            total = measured(name, x)
    finally:
        torch.set_warn_always(before)
    if name == "explained_variance":
        total = total[:1]
    total.sum().backward()
    assert bool(x.grad.isfinite().all())
    assert float(x.grad.abs().max()) > 0
    assert not measured(name, x.detach()).requires_grad
    with torch.no_grad():
        assert not measured(name, x).requires_grad


@over_marked
@pytest.mark.parametrize(("n", "d"), [(40, 6), (8, 20)])
def test_known_by_moments_it_gives_the_same_value(name, n, d):
    for mean in (0.5, 16_000.0):
        x = uneven(n, d, mean=mean / d**0.5)
        known = Cloud.from_moments(Cloud(x).moments)
        torch.testing.assert_close(measured(name, known), measured(name, x), rtol=1e-9, atol=1e-9)


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
    # float32 products round by 6e-8 each; no share of the value is lost with it.
    "isoscore mixed": case("isoscore", CENTRED, 1e-6, precision="mixed"),
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
    "intra_sentence_similarity leave": case(
        "intra_sentence_similarity", {"rotation", "scale"}, form="leave_one_out"
    ),
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
    "partition": case("partition", {"rotation", "row order"}, 1e-8),
    "partition_null": case("partition_null", {"rotation", "row order"}),
}
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
    assert set(MARKED) == {name.split()[0] for name in OF_MOMENTS}
    assert len(MARKED) >= 12
    assert all(find(name).from_moments for name in MARKED)
    own = {"isoscore_star", "best_dimension_accuracy", "cluster_label_nmi"}  # tests of their own
    assert set(EVERY) == {name.split()[0] for name in CASES} | own


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
        tolerance = max(metric.tolerance if "mixed" in name else 1e-9, 1e-9)
        torch.testing.assert_close(
            metric(far, other), metric(x, other), rtol=tolerance, atol=10 * tolerance
        )
    else:
        single = far.float()  # seven digits of the scatter are gone, in the rows themselves
        found, wanted = metric(single, other), metric(single.double(), other)
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
        assert bool(metric(far, other).isfinite().all())


# --- gradients --------------------------------------------------------------------------------

FLAT = ("linear_probe_accuracy", "label_silhouette", "partition", "partition_null", "mixed")
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


# --- stored values and single metrics ---------------------------------------------------------


@pytest.mark.parametrize("name", sorted(GOLDEN["metrics"]))
def test_value_on_the_stored_cloud(name):
    """Values from NumPy (tests/golden/clouds_regenerate.py)."""
    x = torch.tensor(GOLDEN["cloud"], dtype=torch.float64)
    assert x.shape == (64, 8)
    covariance = torch.diag(torch.arange(1.0, 9.0))
    star = partial(isoscore_star, reference_covariance=covariance, shrinkage=GOLDEN["shrinkage"])
    metric = star if name == "isoscore_star" else find(name)
    found = {key: value.item() for key, value in flat(name, metric(x)).items()}
    wanted = flat(name, GOLDEN["metrics"][name])
    assert found.keys() == wanted.keys()
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-10)


def test_every_moment_metric_is_stored():
    assert {*MARKED, "isoscore_star", "partition"} == set(GOLDEN["metrics"])


def test_mean_cosine_of_far_rows_keeps_the_digits():
    x = uneven(40, 16, seed=6) + 4000.0
    unit = x.numpy().astype("longdouble")
    unit = unit / (unit**2).sum(axis=1, keepdims=True) ** 0.5
    sums = unit.sum(axis=0)
    wanted = float(((sums**2).sum() - (unit**2).sum()) / (40 * 39))
    assert find("mean_cosine")(x).item() == pytest.approx(wanted, abs=1e-14)


@pytest.mark.parametrize("span", [3.0, 100.0, 200.0])
def test_mean_cosine_does_not_see_lengths_however_far_apart(span):
    x = uneven(30, 5, seed=7)
    length_N1 = torch.logspace(-span, span, 30, dtype=torch.float64)[:, None]
    found = find("mean_cosine")(x * length_N1).item()
    assert found == pytest.approx(find("mean_cosine")(x).item(), abs=1e-12)


def test_isoscore_star_of_rows_moves_as_its_rows():
    x, reference = uneven(20, 6, seed=8), uneven(50, 6, seed=9)
    value = isoscore_star_of_rows(x, reference).item()
    rotation = torch.linalg.qr(uneven(6, 6, seed=10))[0]
    for rows, target in (
        (x + 4.0, reference),
        (x, reference - 9.0),
        (x @ rotation, reference @ rotation),
        (x * -7.0, reference * 7.0),
        (x.flip(0), reference.flip(0)),
        (x.flip(1), reference.flip(1)),
    ):
        assert isoscore_star_of_rows(rows, target).item() == pytest.approx(value, abs=1e-12)
    assert abs(isoscore_star_of_rows(x @ rotation, reference).item() - value) > 1e-4
