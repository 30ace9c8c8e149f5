"""A stream over two processes, with shards of any size, against one process."""

import pytest
import torch

from isotrain.metrics.streaming import StreamingSuite
from isotrain.metrics.suite import find
from tests.processes import on_ranks

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
N, D = 41, 5


def cloud():
    generator = torch.Generator().manual_seed(0)
    scale_D = torch.linspace(0.3, 2.0, D, dtype=torch.float64)
    return torch.randn(N, D, generator=generator, dtype=torch.float64) * scale_D + 7000.0


def class_gap(x, labels):
    return (x[labels == 0].mean() - x[labels == 1].mean()).double()


def fed(spans):
    functions = {name: find(name) for name in (*MOMENTS, "partition")} | {"gap": class_gap}
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


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(
            found[name], value, rtol=1e-9, atol=1e-9, msg=lambda m, k=name: f"{k}: {m}"
        )


@pytest.mark.slow
def test_two_processes_compute_what_one_does(tmp_path):
    wanted = fed([slice(0, N)]).compute()
    assert wanted["n_rows"].item() == N
    assert wanted["n_rows_kept"].item() == 12
    results = on_ranks(on_shards, 2, tmp_path)
    for (early, local, later, lopsided, empty_batch), own in zip(results, (29, 12), strict=True):
        for found in (early, lopsided, empty_batch):
            assert_same(found, wanted)
        assert local == own
        assert later["n_rows"].item() == N + 8
    assert_same(results[0][2], results[1][2])
