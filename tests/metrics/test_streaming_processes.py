"""A stream over two processes, with shards of any size, against one process."""

import pytest
import torch

from isotrain.metrics.streaming import StreamingSuite
from isotrain.metrics.suite import find
from tests.clouds import uneven
from tests.metrics.test_invariances import MARKED
from tests.metrics.test_streaming import assert_same, class_gap
from tests.processes import on_ranks

N, D = 41, 5


def cloud():
    return uneven(N, D, mean=7000.0)


def fed(spans):
    functions = {name: find(name) for name in (*MARKED, "partition")} | {"gap": class_gap}
    stream = StreamingSuite(D, functions, max_rows=12)
    for span in spans:
        ids = torch.arange(N)[span]
        stream.update(cloud()[span], ids=ids, labels=ids % 2)
    return stream


def on_shards(rank):
    """Uneven shards, then an empty one: what both processes compute, and after more batches."""
    whole, first = slice(0, N), slice(0, 29)
    uneven = fed([slice(0, 10), slice(10, 29)] if rank == 0 else [slice(29, N)])
    early = uneven.compute()
    local = float(uneven.packed[0])  # unsynced again: the rows of this process
    uneven.update(cloud()[:4], ids=torch.arange(100, 104), labels=torch.arange(4) % 2)
    later = uneven.compute()
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
