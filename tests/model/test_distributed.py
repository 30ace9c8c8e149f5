"""Rows over processes: all of them, in the order of one process, with its exact gradient."""

import pytest
import torch

from isotrain.model.distributed import WholeBatch, all_gather, order_keys, sum_over_processes
from tests.processes import on_ranks

N, D = 7, 3  # dealt to two processes: 4 rows and 3


def cloud():
    return torch.randn(N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def contrast(rows_ND):
    """A loss in which every row meets every other one."""
    return torch.logsumexp(rows_ND @ rows_ND.T, dim=1).mean()


def gathered(rank):
    own_ND = cloud()[rank::2].requires_grad_()
    all_ND = all_gather(own_ND)
    contrast(all_ND).backward()
    return all_ND.detach(), own_ND.grad


def dealt(rank):
    """A batch of 5 examples of 2 sequences and 3 positions, dealt out like cards."""
    whole = torch.arange(2 * 5 * 3.0).reshape(2, 5, 3)
    own = whole[:, rank::2]
    places = order_keys(own.shape[1], 2, 3).flatten()
    whole_batch = WholeBatch(places)
    found = whole_batch.gather(own.reshape(-1, 1))
    return found.flatten(), torch.equal(found[whole_batch.local_N], own.reshape(-1, 1))


def empty_and_integer(rank):
    rows = torch.arange(3) if rank else torch.arange(0)
    return all_gather(rows), sum_over_processes(torch.tensor(float(rank + 1)))


def of_rank(rank):
    return gathered(rank), dealt(rank), empty_and_integer(rank)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What both processes find by each function, of one start."""
    return list(zip(*on_ranks(of_rank, 2, tmp_path_factory.mktemp("ranks")), strict=True))


def test_rows_of_unequal_processes_and_the_gradient_of_one(ranks):
    whole_ND = cloud().requires_grad_()
    contrast(whole_ND).backward()
    for rank, (all_ND, grad_ND) in enumerate(ranks[0]):
        assert torch.equal(all_ND, torch.cat([cloud()[0::2], cloud()[1::2]]))
        # A trainer averages gradients over processes; every process computed the whole loss.
        torch.testing.assert_close(grad_ND / 2, whole_ND.grad[rank::2], rtol=1e-12, atol=1e-14)


def test_dealt_rows_come_back_in_the_order_of_one_process(ranks):
    for found, own_found in ranks[1]:
        assert torch.equal(found, torch.arange(30.0))
        assert own_found


def test_a_process_without_rows_and_other_types(ranks):
    for rows, total in ranks[2]:
        assert rows.tolist() == [0, 1, 2]
        assert total == 3.0
