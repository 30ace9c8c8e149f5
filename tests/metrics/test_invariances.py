"""What moves each moment metric and what does not; every metric that carries the mark is here."""

from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.metrics.isoscore_star import isoscore_star_of_rows
from isotrain.metrics.suite import find, flat

light = settings(max_examples=25)
METRICS = Path(__file__).parents[2] / "isotrain" / "metrics"
MARKED = sorted(p.stem for p in METRICS.glob("*.py") if "\n@from_moments" in p.read_text())
CENTRED = {"rotation", "translation", "scale", "duplication"}
ORIGIN = {"rotation", "scale", "duplication"}
DECLARED = {  # beside the order of rows, which moves none
    "isoscore": (find("isoscore"), CENTRED),
    "isoscore mixed": (partial(find("isoscore"), precision="mixed"), CENTRED),
    "isoscore_corrected": (find("isoscore_corrected"), CENTRED - {"duplication"}),
    "mean_cosine": (find("mean_cosine"), {"rotation", "scale", "lengths"}),
    "rankme": (find("rankme"), ORIGIN),
    "outlier_dims": (find("outlier_dims"), {"scale"}),
} | {
    f"{name} {where}".strip(): (partial(find(name), center=not where), ORIGIN if where else CENTRED)
    for name in (
        "participation_ratio",
        "effective_rank",
        "spectral_entropy",
        "stable_rank",
        "explained_variance",
        "condition",
        "alpha_req",
    )
    for where in ("", "origin")
}
EXACT = {name: pair for name, pair in DECLARED.items() if "mixed" not in name}
over_metrics = pytest.mark.parametrize("name", sorted(DECLARED))


def cloud(n, d, seed=0, mean=0.5):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.3, 2.0, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


def measured(function, x):
    return torch.stack(list(flat("value", function(x)).values()))


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


def test_every_marked_metric_is_declared():
    assert set(MARKED) == {name.split()[0] for name in DECLARED}
    assert len(MARKED) >= 12
    assert all(find(name).from_moments for name in MARKED)


@over_metrics
@given(st.integers(24, 40), st.integers(4, 40), st.integers(0, 10_000))
@light
def test_what_does_not_move_a_metric(name, n, d, seed):
    function, declared = DECLARED[name]
    x = cloud(n, d, seed)
    # float32 products round by 6e-8 each; no share of the value is lost with it.
    tolerance = 1e-6 if "mixed" in name else 1e-9
    changes = moved(x, seed)
    rotated = {"column order"} if "rotation" in declared else set()
    asked = declared | rotated | {"row order"}
    if name.split()[0] in ("rankme", "condition") and n <= d:
        asked = asked - {"duplication"}  # they count the rows that could have been
    value = measured(function, x)
    for change in asked:
        found = measured(function, changes[change])
        torch.testing.assert_close(
            found, value, rtol=tolerance, atol=tolerance, msg=lambda m, c=change: f"{c}: {m}"
        )


@over_metrics
def test_what_moves_it_is_not_declared(name):
    """The other direction: no metric is deaf to what it is said to hear."""
    function, declared = DECLARED[name]
    x = cloud(30, 8, seed=3)
    changes = moved(x, 3)
    value = measured(function, x)
    for change in {"rotation", "translation", "lengths", "duplication"} - declared:
        found = measured(function, changes[change])
        assert float((found - value).abs().max()) > 1e-4, change


@pytest.mark.parametrize("name", sorted(EXACT))
@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_extreme_scales(name, scale):
    function, _ = DECLARED[name]
    x = cloud(30, 6, seed=4)
    torch.testing.assert_close(
        measured(function, x * scale), measured(function, x), rtol=1e-9, atol=1e-12
    )


@over_metrics
@pytest.mark.parametrize(("n", "d"), [(60, 16), (12, 16)])
def test_a_mean_of_norm_16000_keeps_the_digits(name, n, d):
    """Centred metrics as without it; the others as in exact arithmetic on the far rows."""
    function, declared = DECLARED[name]
    x = cloud(n, d, seed=5, mean=0.0) / 4.0
    x = (x * 2.0**30).round() / 2.0**30  # so that adding the mean rounds nothing
    far = x + 16_000.0 / d**0.5
    if "translation" in declared:
        tolerance = 1e-6 if "mixed" in name else 1e-9
        torch.testing.assert_close(
            measured(function, far), measured(function, x), rtol=tolerance, atol=tolerance
        )
    else:
        single = far.float()  # seven digits of the scatter are gone, in the rows themselves
        found, wanted = measured(function, single), measured(function, single.double())
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
        assert bool(measured(function, far).isfinite().all())


def test_mean_cosine_of_far_rows_keeps_the_digits():
    x = cloud(40, 16, seed=6) + 4000.0
    unit = x.numpy().astype("longdouble")
    unit = unit / (unit**2).sum(axis=1, keepdims=True) ** 0.5
    sums = unit.sum(axis=0)
    wanted = float(((sums**2).sum() - (unit**2).sum()) / (40 * 39))
    assert find("mean_cosine")(x).item() == pytest.approx(wanted, abs=1e-14)


@pytest.mark.parametrize("span", [3.0, 100.0, 200.0])
def test_mean_cosine_does_not_see_lengths_however_far_apart(span):
    x = cloud(30, 5, seed=7)
    length_N1 = torch.logspace(-span, span, 30, dtype=torch.float64)[:, None]
    found = find("mean_cosine")(x * length_N1).item()
    assert found == pytest.approx(find("mean_cosine")(x).item(), abs=1e-12)


def test_isoscore_star_of_rows_moves_as_its_rows():
    x, reference = cloud(20, 6, seed=8), cloud(50, 6, seed=9)
    value = isoscore_star_of_rows(x, reference).item()
    rotation = torch.linalg.qr(cloud(6, 6, seed=10))[0]
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
