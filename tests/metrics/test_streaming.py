"""Metrics of batches against the same metrics of all embeddings at once, on one process or two."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isotrain.geometry.rows import hash_ids
from isotrain.metrics.streaming import StreamingSuite
from isotrain.metrics.suite import find, suite
from tests.clouds import light, uneven
from tests.metrics.test_invariances import MARKED
from tests.processes import on_ranks


def class_gap(x, labels):
    return (x[labels == 0].mean() - x[labels == 1].mean()).double()


def group_spread(x, groups):
    return torch.stack([x[groups == g].mean() for g in groups.unique()]).std().double()


def row_sum(x):
    return x.double().sum()


OF_ROWS = {"sum": row_sum, "gap": class_gap, "spread": group_spread}


def moments_alone(d=6, names=MARKED):
    return StreamingSuite(d, names, max_rows=0)


def mixed(max_rows=16):
    return StreamingSuite(6, {"isoscore": find("isoscore"), **OF_ROWS}, max_rows=max_rows)


def batches(x, cuts):
    places = sorted(min(cut, len(x)) for cut in cuts)
    return [(a, b) for a, b in zip([0, *places], [*places, len(x)], strict=True)]


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
    x = uneven(n, d, seed, mean)
    stream = moments_alone(d)
    for a, b in batches(x, cuts):
        stream.update(x[a:b])
    found = stream.compute()
    assert found.pop("n_rows").item() == n
    wanted = suite(x, MARKED)
    assert list(found) == list(wanted)
    assert_same(found, wanted)


@pytest.mark.parametrize("width", [1, 32])
def test_constant_rows_in_many_batches_stay_without_scatter(width):
    """The CLS row of layer 0: the same vector in every sentence."""
    names = ("isoscore", "participation_ratio", "effective_rank", "stable_rank", "mean_cosine")
    x = torch.tensor([[0.1, 0.33, -0.1, 0.07, 1 / 70, -16_000.3]], dtype=torch.float64)
    stream = moments_alone(names=names)
    for _ in range(2000):
        stream.update(x.repeat(width, 1))
    assert_same(stream.compute(), suite(x.repeat(2000, 1), names))


@given(
    st.integers(8, 60),
    st.integers(5, 70),
    st.lists(st.integers(0, 60), max_size=5),
    st.integers(0, 10_000),
)
@light
def test_kept_rows_are_those_of_the_lowest_hashes(n, max_rows, cuts, seed):
    x = uneven(n, 6, seed)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    found = feed(mixed(max_rows), x, batches(x, cuts), order).compute()
    assert found["n_rows"].item() == n
    assert found["n_rows_kept"].item() == min(n, max_rows)
    assert_same(found, chosen(x, max_rows), 1e-12)
    assert_same(found, suite(x, ["isoscore"]))


def test_large_numbers_of_groups_and_labels_stay_apart():
    """Such as hashes: float64 holds whole numbers up to 2^53 alone."""
    x, ids = uneven(), torch.arange(60)
    stream = mixed(60)
    groups = (1 << 60) + ids % 5
    stream.update(x, ids=ids, labels=ids % 2, groups=groups)
    wanted = group_spread(x, groups)
    assert stream.compute()["spread"].item() == pytest.approx(wanted.item(), rel=1e-6)


def test_the_input_is_left_alone_and_no_graph_is_kept():
    x = uneven().requires_grad_()
    before = x.detach().clone()
    stream = feed(mixed(), x)
    assert torch.equal(x.detach(), before)
    assert not any(state.requires_grad for state in stream.metric_state.values())
    assert not any(value.requires_grad for value in stream.compute().values())
    fresh, ids = mixed(), torch.arange(60)
    fresh(x, ids=ids, labels=ids % 2, groups=ids % 5)  # torchmetrics allows a graph in forward
    assert not any(state.requires_grad for state in fresh.metric_state.values())


@pytest.mark.parametrize("build", [moments_alone, mixed])
def test_forward_gives_the_batch_and_adds_it(build):
    x, stream = uneven(), build()
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
    x = uneven()
    parts = [feed(build(), x, [span]) for span in [(0, 7), (7, 30), (30, 58), (58, 60)]]
    whole = parts[0]
    for part in parts[1:3]:
        whole.merge_state(part)
    whole.merge_state(parts[3].metric_state)
    whole.merge_state(build())  # one that has seen nothing
    assert_same(whole.compute(), feed(build(), x).compute())
    feed(whole, x, [(0, 9)])
    assert whole.compute()["n_rows"].item() == 69


def test_an_id_that_comes_twice_is_one_row():
    x, ids = uneven(60), torch.arange(60)
    once = StreamingSuite(x.shape[1], ["two_nn"], max_rows=50)
    once.update(x, ids)
    twice = StreamingSuite(x.shape[1], ["two_nn"], max_rows=50)
    twice.update(x, ids)
    twice.update(x[10:30], ids[10:30])
    assert twice.compute()["two_nn"].item() == once.compute()["two_nn"].item()
    assert twice.compute()["n_rows_kept"].item() == 50
    assert twice.compute()["n_rows"].item() == 80


def test_a_last_batch_that_is_too_small_loses_nothing():
    x, names = uneven(41), ["isoscore", "alpha_req"]
    stream = StreamingSuite(6, names, max_rows=0)
    assert set(stream(x[:1])) == {"n_rows"}  # of one batch alone, what is not defined is left out
    with pytest.raises(ValueError, match="alpha_req: this measure needs at least 2"):
        stream.compute()
    stream(x[1:])
    assert_same(stream.compute(), suite(x, names))
    skipping = StreamingSuite(6, names, max_rows=0, refused="skip")
    skipping.update(x[:3])
    assert set(skipping.compute()) == {"n_rows", "isoscore"}


# --- what a stream refuses, and that a refused batch leaves no trace

ROWS, IDS = uneven(30), torch.arange(30)


def stream_of(*names, **functions):
    return StreamingSuite(6, {name: find(name) for name in names} | functions, max_rows=8)


def refused(stream, pattern, x, **kwargs):
    """The error, and the state before it."""
    stream.update(ROWS, ids=IDS % 2, labels=IDS % 2, groups=IDS % 2)
    before = {name: state.clone() for name, state in stream.metric_state.items()}
    with pytest.raises(ValueError, match=pattern):
        stream.update(x, **kwargs)
    after = stream.metric_state
    assert all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("names", [("isoscore",), ("isoscore", "partition")])
def test_bad_rows(names):
    refused(stream_of(*names), "width 6 are expected, got 5", uneven(30, d=5), ids=IDS)
    refused(stream_of(*names), r"\[N, D\]", ROWS[0], ids=torch.arange(6))
    for value in (float("nan"), float("inf")):
        bad = ROWS.clone()
        bad[17, 3] = value
        refused(stream_of(*names), "row 17", bad, ids=IDS)
    refused(stream_of(*names), "scale the rows", ROWS * 1e80, ids=IDS)


def test_missing_ids_labels_and_groups():
    refused(stream_of("isoscore", "partition"), "partition.*pass ids", ROWS)
    refused(stream_of("isoscore", gap=class_gap), r"pass labels=\[N\]", ROWS, ids=IDS)
    refused(stream_of("isoscore", one=group_spread), r"pass groups=\[N\]", ROWS, ids=IDS)
    stream_of("isoscore").update(ROWS)  # moments need none of them


@pytest.mark.parametrize("n", [5, 29, 31, 60])
def test_as_many_ids_as_rows(n):
    refused(stream_of("partition"), "ids", ROWS, ids=torch.arange(n))


def test_a_stream_of_moments_alone_cannot_see_rows():
    with pytest.raises(ValueError, match=r"partition has to see rows.*max_rows"):
        StreamingSuite(6, ["isoscore", "partition"], max_rows=0)
    for width, max_rows in ((0, 10), (4, -1)):
        with pytest.raises(ValueError, match="width starts at 1 and max_rows at 0"):
            StreamingSuite(width, ["isoscore"], max_rows=max_rows)
    for name in ("isoscore_star", "alignment"):
        with pytest.raises(ValueError, match=f"{name} compares two clouds"):
            StreamingSuite(6, [name])


def test_too_few_rows_in_all():
    stream = StreamingSuite(6, ["isoscore", "isoscore_corrected"], max_rows=0)
    stream.update(uneven(0))
    with pytest.raises(ValueError, match=r"isoscore: .*at least 2 rows, got 0"):
        stream.compute()
    stream.update(uneven(3))
    with pytest.raises(ValueError, match=r"isoscore_corrected: .*at least 4 rows, got 3"):
        stream.compute()
    stream.update(uneven(9, seed=1))
    assert stream.compute()["n_rows"].item() == 12


def test_empty_batches_need_nothing_and_change_nothing():
    stream = stream_of("isoscore", gap=class_gap)
    stream.update(torch.zeros(0, 6))
    stream.update(ROWS, ids=IDS, labels=IDS % 2)
    stream.update(torch.zeros(0, 6))
    assert stream.compute()["n_rows"].item() == 30
    wanted = suite(ROWS, ["isoscore"])["isoscore"].item()
    assert stream.compute()["isoscore"].item() == pytest.approx(wanted, abs=1e-12)


# --- two processes, with shards of any size

N, D = 41, 5
X = uneven(N, D, mean=7000.0)


def fed(spans):
    functions = {name: find(name) for name in (*MARKED, "partition")} | {"gap": class_gap}
    stream = StreamingSuite(D, functions, max_rows=12)
    for span in spans:
        ids = torch.arange(N)[span]
        stream.update(X[span], ids=ids, labels=ids % 2)
    return stream


def on_shards(rank):
    """Uneven shards, then an empty one: what both processes compute, and after more batches."""
    whole, first = slice(0, N), slice(0, 29)
    stream = fed([slice(0, 10), slice(10, 29)] if rank == 0 else [slice(29, N)])
    early = stream.compute()
    local = float(stream.packed[0])  # unsynced again: the rows of this process
    stream.update(X[:4], ids=torch.arange(100, 104), labels=torch.arange(4) % 2)
    later = stream.compute()
    lopsided = fed([whole] if rank == 0 else []).compute()
    empty_batch = fed([first] if rank == 0 else [slice(29, N), slice(0, 0)]).compute()
    return early, local, later, lopsided, empty_batch


@pytest.mark.slow
def test_two_processes_compute_what_one_does(tmp_path):
    wanted = fed([slice(0, N)]).compute()
    assert wanted["n_rows"].item() == N
    assert wanted["n_rows_kept"].item() == 12
    results = on_ranks(on_shards, 2, tmp_path)
    for (early, local, later, lopsided, empty_batch), own in zip(results, (29, 12), strict=True):
        for found in (early, lopsided, empty_batch):
            assert found.keys() == wanted.keys()
            assert_same(found, wanted)
        assert local == own
        assert later["n_rows"].item() == N + 8
    assert_same(results[0][2], results[1][2])
