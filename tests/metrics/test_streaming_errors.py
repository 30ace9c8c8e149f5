"""What a stream refuses, and that a refused batch leaves no trace."""

import pytest
import torch

from isotrain.metrics.streaming import StreamingSuite
from isotrain.metrics.suite import find, suite
from tests.clouds import uneven
from tests.metrics.test_streaming import class_gap


def cloud(n=30, **options):
    return uneven(n, **options)


def group_mean(x, groups):
    return x[groups == 0].mean().double()


def stream_of(*names, **functions):
    return StreamingSuite(6, {name: find(name) for name in names} | functions, max_rows=8)


def refused(stream, pattern, x, **kwargs):
    """The error, and the state before it."""
    stream.update(cloud(), **{name: torch.arange(30) % 2 for name in ("ids", "labels", "groups")})
    before = {name: state.clone() for name, state in stream.metric_state.items()}
    with pytest.raises(ValueError, match=pattern):
        stream.update(x, **kwargs)
    after = stream.metric_state
    assert all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("names", [("isoscore",), ("isoscore", "partition")])
def test_bad_rows(names):
    refused(stream_of(*names), "width 6 are expected, got 5", cloud(d=5), ids=torch.arange(30))
    refused(stream_of(*names), r"\[N, D\]", cloud()[0], ids=torch.arange(6))
    for value in (float("nan"), float("inf")):
        bad = cloud()
        bad[17, 3] = value
        refused(stream_of(*names), "row 17", bad, ids=torch.arange(30))
    refused(stream_of(*names), "scale the rows", cloud() * 1e80, ids=torch.arange(30))


def test_missing_ids_labels_and_groups():
    ids = torch.arange(30)
    refused(stream_of("isoscore", "partition"), "partition.*pass ids", cloud())
    refused(stream_of("isoscore", gap=class_gap), r"pass labels=\[N\]", cloud(), ids=ids)
    refused(stream_of("isoscore", one=group_mean), r"pass groups=\[N\]", cloud(), ids=ids)
    stream_of("isoscore").update(cloud())  # moments need none of them


@pytest.mark.parametrize("n", [5, 29, 31, 60])
def test_as_many_ids_as_rows(n):
    refused(stream_of("partition"), "ids", cloud(), ids=torch.arange(n))


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
    stream.update(cloud(0))
    with pytest.raises(ValueError, match=r"isoscore: .*at least 2 rows, got 0"):
        stream.compute()
    stream.update(cloud(3))
    with pytest.raises(ValueError, match=r"isoscore_corrected: .*at least 4 rows, got 3"):
        stream.compute()
    stream.update(cloud(9, seed=1))
    assert stream.compute()["n_rows"].item() == 12


def test_empty_batches_need_nothing_and_change_nothing():
    stream, x = stream_of("isoscore", gap=class_gap), cloud()
    ids = torch.arange(30)
    stream.update(torch.zeros(0, 6))
    stream.update(x, ids=ids, labels=ids % 2)
    stream.update(torch.zeros(0, 6))
    assert stream.compute()["n_rows"].item() == 30
    wanted = suite(x, ["isoscore"])["isoscore"].item()
    assert stream.compute()["isoscore"].item() == pytest.approx(wanted, abs=1e-12)
