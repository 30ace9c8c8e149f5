"""What holds for every metric: bad input, odd input, precision."""

import warnings

import pytest
import torch

from isotrain.metrics.suite import find, flat, needs
from tests.clouds import uneven
from tests.metrics.test_invariances import EVERY, MARKED, extras

LEAST = {"isoscore_corrected": 4, "label_silhouette": 3, "two_nn": 3}
LEAST |= {"alignment": 1, "cosine_drift": 1, "partition": 1}
over_every = pytest.mark.parametrize("name", EVERY)
over_marked = pytest.mark.parametrize("name", MARKED)


def stacked(name, found):
    values = list(flat(name, found).values())
    assert all(value.shape == () for value in values)
    return torch.stack(values)


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
        with pytest.raises((ValueError, RuntimeError), match=r"got|cannot be multiplied"):
            measured(name, x, uneven(8, 3))


@over_every
def test_wrong_rank(name):
    for shape in ((), (4,), (2, 3, 4), (0,)):
        with pytest.raises(ValueError, match=r"\[N, D\], got .*flatten"):
            measured(name, torch.zeros(shape), uneven(4, 3))


@over_every
def test_too_few_rows(name):
    least = LEAST.get(name, 2)
    for n in range(least):
        with pytest.raises(ValueError, match=f"at least {least} rows, got {n}; measure more"):
            measured(name, torch.ones(n, 3))


NEEDING = [(n, needs(find(n))) for n in EVERY if needs(find(n)) in ("labels", "groups")]


@pytest.mark.parametrize(("name", "need"), NEEDING)
def test_labels_and_groups_are_one_class_number_per_embedding(name, need):
    x, numbers = uneven(30, 3), torch.arange(30) % 2
    wrong = [(numbers[1:], r"29")]
    if need == "groups":
        wrong += [(numbers.double(), "integers, .*torch.float64")]
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


@pytest.mark.parametrize("name", [name for name in EVERY if "partition" not in name])
@pytest.mark.parametrize("value", [0.0, 0.1, -16_000.3, 1e-300, 1e300])
def test_equal_embeddings_are_without_scatter_or_rejected(name, value):
    cone = float(value != 0)
    first = {
        "condition": 1.0 / (3 * 2.0**-52),
        "outlier_dims": cone,
        "max_explainable_variance": 1.0,
    }
    first |= dict.fromkeys(("mean_cosine", "rankme", "self_similarity", "s_intra", "s_inter"), cone)
    first |= {"intra_sentence_similarity": cone, "best_dimension_accuracy": 2 / 3}
    first |= {"linear_probe_accuracy": 2 / 3}
    x = torch.full((300, 3), value, dtype=torch.float64)
    if name in ("alpha_req", "lid", "two_nn"):
        with pytest.raises(ValueError, match=r"got 0; measure more|drop repeated"):
            measured(name, x)
    else:
        found = measured(name, x)
        assert bool(found.isfinite().all())
        assert found[0].item() == pytest.approx(first.get(name, 0.0), abs=1e-4)


@over_marked
def test_any_shape_is_finite_or_rejected(name):
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
