"""A training step of cluster PCA waits for numbers of the GPU a few times, for any K."""

import pytest
import torch

from isotrain.transforms.shrink_clip import ShrinkClip
from tests.cluster_parts import layer_with
from tests.host_syncs import host_syncs


def waits(**options):
    """Those of one training step, once the queue is full; eigenproblems are counted apart."""
    generator = torch.Generator().manual_seed(0)
    layer = layer_with(16, queue_rows=256, **options)
    for step in range(9):
        x = torch.randn(64, 16, generator=generator, requires_grad=True)
        labels = [torch.arange(64) % 3] * layer.reads_labels
        with host_syncs() as found:
            layer(x, *labels).square().sum().backward()
            layer.observe(x, *labels)
        assert len(layer.queue.rows()) == min(256, 32 * (step + 1))
    n_problems = found.pop("_linalg_eigh")
    return n_problems, sum(found.values())


def test_the_counter_counts_what_waits():
    x = torch.eye(3)
    with host_syncs() as found:
        x.sum().item(), bool(x.any()), x[x[0] > 0], x.tolist(), torch.equal(x, x + 1)
        torch.nn.functional.one_hot(torch.tensor([0, 1]), 2)
    assert found == {"_local_scalar_dense": 2, "index by a mask": 1, "tolist": 1, "equal": 1}


@pytest.mark.parametrize(
    "options", [{}, {"kind": ShrinkClip}, {"n_leading": 2}, {"protect_labels": True}]
)
def test_the_waits_of_a_step_do_not_grow_with_the_clusters(options):
    """3 for rows that are finite, 2 for sizes and scatter, 1 for empty clusters, 6 for k-means.

    And 1 behind each eigenproblem, which has just waited itself: is float32 enough?
    """
    for k in (2, 4, 8):
        n_problems, n_waits = waits(n_clusters=k, n_components=2, **options)
        assert n_problems <= k + 5
        assert 0 < n_waits - n_problems <= 12 + 4 * options.get("protect_labels", False), k


def test_one_cluster_waits_six_times():
    assert waits(n_clusters=1, n_components=2) == (1, 6)
