"""Bad and odd input to every metric: an error that helps, or the right finite value."""

import warnings
from pathlib import Path

import pytest
import torch

from isotrain.geometry.cloud import Cloud
from isotrain.metrics.suite import find, flat, needs

NAMES = (
    "alpha_req",
    "condition",
    "effective_rank",
    "explained_variance",
    "isoscore",
    "isoscore_corrected",
    "mean_cosine",
    "outlier_dims",
    "participation_ratio",
    "rankme",
    "spectral_entropy",
    "stable_rank",
)
PARTS = ("__init__", "suite", "streaming")
EVERY = sorted(
    {file.stem for file in Path(find.__code__.co_filename).parent.glob("*.py")} - {*PARTS}
)
LEAST = {"isoscore_corrected": 4, "label_silhouette": 3, "two_nn": 3}
LEAST |= {"alignment": 1, "cosine_drift": 1, "partition": 1}
REFUSE_CONSTANT = ("alpha_req",)
over_metrics = pytest.mark.parametrize("name", NAMES)
over_every = pytest.mark.parametrize("name", EVERY)


def cloud(n, d, seed=0, mean=0.5):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.3, 2.0, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


def measured(name, x):
    return torch.stack(list(flat(name, find(name)(x)).values()))


def with_extras(name, x, other=None):
    """The values of any metric; `other` embeddings to compare with are `x` turned round."""
    function, number_N = find(name), torch.arange(len(x) if x.ndim else 0)
    other = x.flip(-1) if other is None else other
    extras = {"labels": number_N % 2, "groups": number_N % 4, "reference": other}
    extras["positives"] = other
    options = {"n_neighbors": 5} if name == "lid" else {}
    needed = {need: extras[need] for need in [needs(function)] if need != "rows"}
    return torch.stack(list(flat(name, function(x, **needed, **options)).values()))


@over_every
def test_not_finite(name):
    x, other = cloud(300, 4), cloud(300, 4, seed=1)
    for value in (float("nan"), float("inf"), -float("inf")):
        x[271, 3] = x[290, 0] = value
        with pytest.raises(ValueError, match=r"2 of 300 rows.*row 271.*drop those rows"):
            with_extras(name, x, other)


@over_every
def test_infinities_of_both_signs_and_half_precision(name):
    x = cloud(20, 4).half()
    x[3, 0], x[9, 0] = float("inf"), -float("inf")
    with pytest.raises(ValueError, match="row 3"):
        with_extras(name, x, cloud(20, 4))


@over_every
def test_wrong_rank(name):
    for shape in ((), (4,), (2, 3, 4), (0,)):
        with pytest.raises(ValueError, match=r"\[N, D\], got .*flatten"):
            with_extras(name, torch.zeros(shape), cloud(4, 3))


@over_every
def test_too_few_rows_and_no_dimension(name):
    least = LEAST.get(name, 2)
    for n in range(least):
        with pytest.raises(ValueError, match=f"at least {least} rows, got {n}; measure more"):
            with_extras(name, torch.ones(n, 3))
    with pytest.raises(ValueError, match="at least one dimension"):
        with_extras(name, torch.zeros(7, 0))


@over_every
def test_every_type_gives_the_value_of_its_double(name):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.int32):
        x = (cloud(60, 6) * 10.0).to(dtype)
        found = with_extras(name, x)
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, with_extras(name, x.double()), rtol=1e-12, atol=1e-12)


@over_metrics
@pytest.mark.parametrize(("n", "d"), [(4, 7), (300, 3)])
def test_constant_rows_are_refused_or_finite_and_without_scatter(name, n, d):
    for value in (0.0, 0.1, -16_000.3, 1e-300, 1e300):
        assert_refused_or_without_scatter(name, value, n, d)


def assert_refused_or_without_scatter(name, value, n, d):
    x = torch.full((n, d), value, dtype=torch.float64)
    if name in REFUSE_CONSTANT:
        with pytest.raises(ValueError, match="got 0; measure more rows"):
            find(name)(x)
        return
    if name == "outlier_dims":
        assert bool(measured(name, x).isfinite().all())
        return
    cap = 1.0 / (d * 2.0**-52)
    cone = float(value != 0)
    wanted = {"condition": cap, "mean_cosine": cone, "rankme": cone}.get(name, 0.0)
    assert measured(name, x).tolist() == pytest.approx([wanted] * len(measured(name, x)), abs=1e-4)


def finite_or_refused(name, x):
    try:
        return bool(measured(name, x).isfinite().all())
    except ValueError as error:
        return name in ("alpha_req", "isoscore_corrected") and "measure more" in str(error)


@over_metrics
def test_two_rows_and_one_dimension_are_finite_or_refused(name):
    for n in (2, 4, 9):
        for d in (1, 2, 6):
            assert finite_or_refused(name, cloud(n, d)), (n, d)


@over_metrics
def test_few_rows_and_many_are_finite_and_float64(name):
    for n, d in ((5, 30), (29, 30), (30, 30), (31, 30), (255, 3), (257, 3)):
        found = measured(name, cloud(n, d))
        assert found.dtype == torch.float64
        assert bool(found.isfinite().all()), (n, d)


@over_metrics
def test_zero_rows_among_others(name):
    x = cloud(30, 5)
    x[::3] = 0.0
    assert bool(measured(name, x).isfinite().all())


@over_metrics
def test_duplicates_leave_no_direction_of_rounding(name):
    """12 copies of 5 rows: finite, and what the rows themselves have."""
    x = cloud(5, 8).repeat(12, 1)
    found = measured(name, x)
    assert bool(found.isfinite().all())
    if name in ("isoscore", "participation_ratio", "effective_rank", "alpha_req", "stable_rank"):
        torch.testing.assert_close(found, measured(name, x[:5]), rtol=1e-9, atol=1e-12)


@over_metrics
def test_float16_at_its_ends(name):
    """Entries whose squares leave float16 by far."""
    x = cloud(40, 6).mul(2e4).clamp(-6e4, 6e4).half()
    torch.testing.assert_close(measured(name, x), measured(name, x.double()), rtol=1e-12, atol=0.0)


@over_metrics
def test_layout_and_autocast_change_nothing(name):
    x = cloud(40, 6).float()
    value = measured(name, x)
    columns = x.T.contiguous().T
    torch.testing.assert_close(measured(name, columns), value, rtol=1e-12, atol=1e-14)
    padded = torch.nn.functional.pad(x, (3, 2))[:, 3:9]
    torch.testing.assert_close(measured(name, padded), value, rtol=1e-12, atol=1e-14)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(measured(name, x), value)


@over_metrics
def test_input_and_global_seed_are_left_alone(name):
    x = cloud(20, 5)
    kept, state = x.clone(), torch.get_rng_state()
    first = measured(name, x)
    assert torch.equal(x, kept)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(measured(name, x), first)


@over_metrics
@pytest.mark.parametrize(("n", "d"), [(7, 5), (5, 7)])
def test_the_graph_is_kept_and_no_warning_is_given(name, n, d):
    """Torch warns of float(tensor) with a graph once a process; here, each time."""
    x = cloud(n, d).requires_grad_()
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


@over_metrics
def test_no_graph_without_asking(name):
    assert not measured(name, cloud(9, 5)).requires_grad
    with torch.no_grad():
        assert not measured(name, cloud(9, 5).requires_grad_()).requires_grad


@over_metrics
@pytest.mark.parametrize(("n", "d"), [(40, 6), (8, 20)])
def test_known_by_moments_it_gives_the_same_value(name, n, d):
    for mean in (0.5, 16_000.0):
        x = cloud(n, d, mean=mean / d**0.5)
        known = Cloud.from_moments(Cloud(x).moments)
        torch.testing.assert_close(measured(name, known), measured(name, x), rtol=1e-9, atol=1e-9)
