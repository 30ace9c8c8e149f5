"""Metrics of batches against the same metrics of all rows at once."""

import pickle
from copy import deepcopy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics import MetricCollection

from isotrain.geometry.rows import hash_ids
from isotrain.metrics.streaming import StreamingSuite
from isotrain.metrics.suite import suite
from tests.metrics.clouds import light

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


def cloud(n=60, d=6, seed=0, mean=0.5):
    generator = torch.Generator().manual_seed(seed)
    scale_D = torch.linspace(0.3, 2.0, d, dtype=torch.float64)
    return torch.randn(n, d, generator=generator, dtype=torch.float64) * scale_D + mean


def class_gap(x, labels):
    return (x[labels == 0].mean() - x[labels == 1].mean()).double()


def group_spread(x, groups):
    return torch.stack([x[groups == g].mean() for g in groups.unique()]).std().double()


def row_sum(x):
    return x.double().sum()


OF_ROWS = {"sum": row_sum, "gap": class_gap, "spread": group_spread}


def moments_alone(d=6, names=MOMENTS):
    return StreamingSuite(d, names, max_rows=0)


def mixed(max_rows=16, **kwargs):
    from isotrain.metrics.isoscore import isoscore

    return StreamingSuite(6, {"isoscore": isoscore, **OF_ROWS}, max_rows=max_rows, **kwargs)


def batches(x, cuts):
    places = sorted(min(cut, len(x)) for cut in cuts)
    return [(a, b) for a, b in zip([0, *places], [*places, len(x)], strict=True)]


def sevens(n):
    """Batches of 1 to 7 rows in turn."""
    spans, start, width = [], 0, 1
    while start < n:
        spans.append((start, min(start + width, n)))
        start, width = start + width, width % 7 + 1
    return spans


def feed(stream, x, spans=None, order=None):
    """Rows with ids 0 …, labels id mod 2 and groups id mod 5, batch by batch."""
    ids = torch.arange(len(x)) if order is None else order
    for a, b in spans or [(0, len(x))]:
        i = ids[a:b]
        stream.update(x[i], ids=i, labels=i % 2, groups=i % 5)
    return stream


def chosen(x, max_rows):
    """What the rows with the lowest hashes give."""
    ids = torch.arange(len(x))
    ids = ids[hash_ids(ids).argsort()[:max_rows]]
    return suite(x[ids], OF_ROWS, labels=ids % 2, groups=ids % 5)


def assert_same(found, wanted, tolerance=1e-9):
    for name, value in wanted.items():
        torch.testing.assert_close(
            found[name], value, rtol=tolerance, atol=tolerance, msg=lambda m, k=name: f"{k}: {m}"
        )


@given(
    st.integers(12, 60),
    st.integers(3, 20),
    st.lists(st.integers(0, 60), max_size=6),
    st.sampled_from([0.0, 0.5, 4000.0]),
    st.integers(0, 10_000),
)
@light
def test_any_cut_gives_the_values_of_all_rows(n, d, cuts, mean, seed):
    x = cloud(n, d, seed, mean)
    stream = moments_alone(d)
    for a, b in batches(x, cuts):
        stream.update(x[a:b])
    found = stream.compute()
    assert found.pop("n_rows").item() == n
    wanted = suite(x, MOMENTS)
    assert list(found) == list(wanted)
    assert_same(found, wanted)


@pytest.mark.parametrize("mean", [0.5, 6500.0])
def test_row_by_row(mean):
    x = cloud(300, 6, seed=1, mean=mean)
    stream = moments_alone()
    for row in x:
        stream.update(row[None])
    assert_same(stream.compute(), suite(x, MOMENTS))


@pytest.mark.parametrize("value", [0.1, -16_000.3])
def test_a_constant_dimension_in_many_batches(value):
    x = cloud(1500, seed=2)
    x[:, 2] = value
    assert_same(feed(moments_alone(), x, sevens(1500)).compute(), suite(x, MOMENTS))


@pytest.mark.parametrize("width", [1, 32])
def test_constant_rows_in_many_batches_stay_without_scatter(width):
    """The CLS row of layer 0: the same vector in every sentence."""
    names = ("isoscore", "participation_ratio", "effective_rank", "stable_rank", "mean_cosine")
    x = torch.tensor([[0.1, 0.33, -0.1, 0.07, 1 / 70, -16_000.3]], dtype=torch.float64)
    stream = moments_alone(names=names)
    for _ in range(2000):
        stream.update(x.repeat(width, 1))
    assert_same(stream.compute(), suite(x.repeat(2000, 1), names))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64])
def test_other_types(dtype):
    x = (cloud() * 10).to(dtype)
    stream = feed(moments_alone(), x, [(0, 25), (25, 60)])
    assert_same(stream.compute(), suite(x.double(), MOMENTS))
    kept = feed(mixed(), x, [(0, 25), (25, 60)])
    assert_same(kept.compute(), chosen(x.double(), 16))


@given(
    st.integers(8, 60),
    st.integers(5, 70),
    st.lists(st.integers(0, 60), max_size=5),
    st.integers(0, 10_000),
)
@light
def test_kept_rows_are_those_of_the_lowest_hashes(n, max_rows, cuts, seed):
    x = cloud(n, 6, seed)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    found = feed(mixed(max_rows), x, batches(x, cuts), order).compute()
    assert found["n_rows"].item() == n
    assert found["n_rows_kept"].item() == min(n, max_rows)
    assert_same(found, chosen(x, max_rows), 1e-12)
    assert_same(found, suite(x, ["isoscore"]))


def test_a_metric_of_rows_is_that_of_the_kept_rows():
    x = cloud(50)
    stream = StreamingSuite(6, ["partition"], max_rows=20)
    stream.update(x[:33], ids=torch.arange(33))
    stream.update(x[33:], ids=torch.arange(33, 50))
    ids = hash_ids(torch.arange(50)).argsort()[:20]
    assert_same(stream.compute(), suite(x[ids], ["partition"]), 1e-9)


def test_large_numbers_of_groups_and_labels_stay_apart():
    """Such as hashes: float64 holds whole numbers up to 2^53 alone."""
    x, ids = cloud(), torch.arange(60)
    stream = mixed(60)
    groups = (1 << 60) + ids % 5
    stream.update(x, ids=ids, labels=ids % 2, groups=groups)
    wanted = group_spread(x, groups)
    assert stream.compute()["spread"].item() == pytest.approx(wanted.item(), rel=1e-6)


def test_the_input_is_left_alone_and_no_graph_is_kept():
    x = cloud().requires_grad_()
    before = x.detach().clone()
    stream = feed(mixed(), x)
    assert torch.equal(x.detach(), before)
    assert not any(state.requires_grad for state in stream.metric_state.values())
    assert not any(value.requires_grad for value in stream.compute().values())
    fresh, ids = mixed(), torch.arange(60)
    fresh(x, ids=ids, labels=ids % 2, groups=ids % 5)  # torchmetrics allows a graph in forward
    assert not any(state.requires_grad for state in fresh.metric_state.values())


# What torchmetrics does with a metric


@pytest.mark.parametrize("copy", [deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_in_mid_stream_go_on_by_themselves(copy):
    x = cloud()
    first = feed(mixed(), x, [(0, 30)])
    second = copy(first)
    for stream in (first, second):
        feed(stream, x, [(30, 60)])
    assert_same(second.compute(), first.compute(), 0.0)
    assert_same(second.compute(), chosen(x, 16), 1e-12)
    third = copy(first)
    feed(third, x, [(0, 10)])
    assert first.compute()["n_rows"].item() == 60
    assert third.compute()["n_rows"].item() == 70


@pytest.mark.parametrize("build", [moments_alone, mixed])
def test_forward_gives_the_batch_and_adds_it(build):
    x, stream = cloud(), build()
    for a, b in [(0, 15), (15, 40), (40, 60)]:
        i = torch.arange(a, b)
        of_batch = stream(x[i], ids=i, labels=i % 2, groups=i % 5)
        assert of_batch["n_rows"].item() == b - a
        assert_same(of_batch, suite(x[a:b], ["isoscore"]))
    assert_same(stream.compute(), feed(build(), x).compute())
    feed(stream, x)  # an update after forward
    assert stream.compute()["n_rows"].item() == 120


@pytest.mark.parametrize("build", [moments_alone, mixed])
def test_states_merge(build):
    x = cloud()
    parts = [feed(build(), x, [span]) for span in [(0, 7), (7, 30), (30, 58), (58, 60)]]
    whole = parts[0]
    for part in parts[1:3]:
        whole.merge_state(part)
    whole.merge_state(parts[3].metric_state)
    whole.merge_state(build())  # one that has seen nothing
    assert_same(whole.compute(), feed(build(), x).compute())
    feed(whole, x, [(0, 9)])
    assert whole.compute()["n_rows"].item() == 69


@pytest.mark.parametrize("build", [moments_alone, mixed])
def test_reset_forgets(build):
    x, stream = cloud(), build()
    feed(stream, x + 50.0)
    stream.reset()
    feed(stream, x)
    assert_same(stream.compute(), feed(build(), x).compute(), 0.0)


@pytest.mark.parametrize("build", [moments_alone, mixed])
def test_state_dict_when_persistent(build):
    x = cloud()
    first = feed(build(), x, [(0, 33)])
    assert first.state_dict() == {}
    first.persistent(True)
    second = build()
    second.persistent(True)
    second.load_state_dict(first.state_dict())
    feed(second, x, [(33, 60)])
    assert_same(second.compute(), feed(build(), x).compute(), 1e-12)


def test_to_a_device_and_half_keep_double_sums():
    stream = feed(moments_alone(), cloud(), [(0, 30)]).to("cpu").half().float()
    feed(stream, cloud(), [(30, 60)])
    found = stream.compute()
    assert all(value.dtype == torch.float64 for value in found.values())
    assert_same(found, suite(cloud(), MOMENTS))


def test_inside_a_collection():
    x = cloud()
    collection = MetricCollection(
        {"all": mixed(), "two": StreamingSuite(6, ["rankme", "outlier_dims"], max_rows=0)},
        prefix="val/",
    )
    for a, b in [(0, 20), (20, 45), (45, 60)]:
        i = torch.arange(a, b)
        collection.update(x[i], ids=i, labels=i % 2, groups=i % 5)
    found = collection.compute()
    assert all(key.startswith("val/") for key in found)
    # A name that both have, n_rows, makes the collection put its own names in front of all.
    values = {key.removeprefix("val/")[4:]: value for key, value in found.items()}
    assert_same(values, suite(x, ["isoscore", "rankme", "outlier_dims"]))
    assert_same(values, chosen(x, 16), 1e-12)


@pytest.mark.parametrize("last", [1, 0])
def test_a_last_batch_that_is_too_small_loses_nothing(last):
    x = cloud(40 + last)
    stream = StreamingSuite(x.shape[1], ["isoscore", "alpha_req"], max_rows=0)
    for start in range(0, 40, 10):
        assert "isoscore" in stream(x[start : start + 10])
    found = stream(x[40:])
    assert "isoscore" not in found
    assert stream.compute()["n_rows"] == 40 + last
    assert_same(stream.compute(), suite(x, ["isoscore", "alpha_req"]))


def test_an_id_that_comes_twice_is_one_row():
    x, ids = cloud(60), torch.arange(60)
    once = StreamingSuite(x.shape[1], ["two_nn"], max_rows=50)
    once.update(x, ids)
    twice = StreamingSuite(x.shape[1], ["two_nn"], max_rows=50)
    twice.update(x, ids)
    twice.update(x[10:30], ids[10:30])
    assert twice.compute()["two_nn"].item() == once.compute()["two_nn"].item()
    assert twice.compute()["n_rows_kept"].item() == 50
    assert twice.compute()["n_rows"].item() == 80


def test_what_is_not_defined_can_be_left_out():
    for refused in ("raise", "skip"):
        stream = StreamingSuite(4, ["isoscore", "alpha_req"], max_rows=0, refused=refused)
        stream.update(torch.tensor([[1.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0]]))
        if refused == "skip":
            assert set(stream.compute()) == {"n_rows", "isoscore"}
        else:
            with pytest.raises(ValueError, match="alpha_req: a slope needs"):
                stream.compute()


@pytest.mark.parametrize(("width", "max_rows"), [(0, 10), (4, -1)])
def test_impossible_sizes_are_refused(width, max_rows):
    with pytest.raises(ValueError, match="width starts at 1 and max_rows at 0"):
        StreamingSuite(width, ["isoscore"], max_rows=max_rows)
