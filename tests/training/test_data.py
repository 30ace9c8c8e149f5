"""Batches: padding, order by (seed, epoch), and evaluation without repeats."""

import pytest
import torch

from isotrain.tasks.data.encoding import collate
from isotrain.training.data import BatchedExamples, EpochBatches, SortedBatches
from isotrain.types import Example


def example(index, *lengths, spans=None, label=0):
    return Example(
        input_ids=[[10 * index + 5] * n for n in lengths],
        token_type_ids=[[1] * n for n in lengths],
        special_mask=[[1, *[0] * (n - 2), 1] for n in lengths],
        spans=spans,
        label=label,
        index=index,
    )


def test_collate_pads_each_field_with_its_own_value():
    batch = collate([example(7, 3, label=1), example(2, 5)], pad_id=99)
    assert batch.input_ids.tolist() == [[75, 75, 75, 99, 99], [25] * 5]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 0, 0], [1] * 5]
    assert batch.token_type_ids.tolist() == [[1, 1, 1, 0, 0], [1] * 5]
    assert batch.special_mask.tolist() == [[1, 0, 1, 1, 1], [1, 0, 0, 0, 1]]
    assert batch.labels.tolist() == [1, 0]
    assert batch.labels.dtype == torch.int64
    assert batch.index.tolist() == [7, 2]
    assert batch.spans is None
    assert batch.n_sequences == 1


def test_collate_is_sequence_major():
    first = example(1, 2, 3, spans=[[(0, 1)], [(1, 3)]], label=0.5)
    second = example(2, 4, 2, spans=[[(2, 4)], [(0, 2)]], label=1.0)
    batch = collate([first, second], pad_id=0)
    assert batch.n_sequences == 2
    assert batch.input_ids.tolist() == [
        [15, 15, 0, 0],
        [25] * 4,
        [15, 15, 15, 0],
        [25, 25, 0, 0],
    ]
    assert batch.attention_mask.sum(dim=1).tolist() == [2, 4, 3, 2]
    assert batch.spans.tolist() == [[[0, 1]], [[2, 4]], [[1, 3]], [[0, 2]]]
    assert batch.labels.tolist() == [0.5, 1.0]
    assert batch.labels.dtype == torch.float32


LENGTHS = torch.randint(5, 60, (1003,), generator=torch.Generator().manual_seed(0)).tolist()


def epoch(batching, seed=0, number=0, lengths=LENGTHS, batch_size=8):
    sampler = EpochBatches(lengths, batch_size, batching, seed)
    sampler.set_epoch(number)
    return list(sampler)


def test_a_sampler_that_would_divide_batches_again_names_the_fix():
    with pytest.raises(TypeError, match="give the Trainer use_distributed_sampler=False"):
        torch.utils.data.DistributedSampler(BatchedExamples([], 0), num_replicas=2, rank=0)


@pytest.mark.parametrize("batching", ["length", "random"])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 1003])
def test_each_row_comes_once_and_the_last_part_is_kept(batching, n):
    batches = epoch(batching, lengths=LENGTHS[:n])
    assert sorted(i for batch in batches for i in batch) == list(range(n))
    assert len(batches) == len(EpochBatches(LENGTHS[:n], 8, batching, 0)) == -(-n // 8)
    sizes = sorted(map(len, batches))
    assert sizes[1:] == [8] * (len(batches) - 1)
    assert sizes[0] == n % 8 or sizes[0] == 8


@pytest.mark.parametrize("batching", ["length", "random"])
def test_the_order_is_a_function_of_seed_and_epoch(batching):
    first = epoch(batching, seed=3, number=2)
    torch.manual_seed(11)
    assert epoch(batching, seed=3, number=2) == first
    sampler = EpochBatches(LENGTHS, 8, batching, 3)
    sampler.set_epoch(2)
    assert list(sampler) == list(sampler) == first
    others = [epoch(batching, seed=3, number=1), epoch(batching, seed=4, number=2)]
    assert all(other != first for other in others)
    assert {tuple(sorted(b)) for b in others[0]} != {tuple(sorted(b)) for b in first}


def padding(batches):
    return sum(max(LENGTHS[i] for i in b) * len(b) - sum(LENGTHS[i] for i in b) for b in batches)


def test_lengths_together_save_padding():
    assert padding(epoch("length")) < 0.2 * padding(epoch("random"))


def test_lengths_are_sorted_within_fifty_batches_only():
    """Long rows must not all end in the same batches: 1,003 rows hold three pools of 400."""
    longest = [max(LENGTHS[i] for i in batch) for batch in epoch("length")]
    assert longest != sorted(longest)
    assert longest != sorted(longest, reverse=True)
    tops = {i for i, n in enumerate(LENGTHS) if n == 59}
    assert len({k for k, batch in enumerate(epoch("length")) if tops & set(batch)}) >= 3


@pytest.mark.parametrize("batching", ["length", "random"])
def test_the_global_random_state_is_left_alone(batching):
    before = torch.get_rng_state()
    epoch(batching)
    assert torch.equal(torch.get_rng_state(), before)


def test_evaluation_batches_are_of_like_lengths_in_a_fixed_shuffled_order():
    batches = list(SortedBatches(LENGTHS, 64))
    assert sorted(i for batch in batches for i in batch) == list(range(1003))
    assert len(SortedBatches(LENGTHS, 64)) == len(batches) == 16
    assert list(SortedBatches(LENGTHS, 64)) == batches
    longest = [max(LENGTHS[i] for i in batch) for batch in batches]
    assert longest != sorted(longest, reverse=True)  # a part of them is not all long rows
    assert padding(batches) < 0.1 * padding(epoch("random"))


def test_the_trainer_tells_the_epoch(built):
    experiment = built("trainer.max_epochs=2", "+trainer.limit_val_batches=0", "task=rte")
    seen = []
    experiment.module.on_train_batch_start = lambda batch, _: seen.append(batch.index.tolist())
    experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    assert len(seen) == 24
    lengths = [max(map(len, e.input_ids)) for e in experiment.data.examples["train"]]
    for number in (0, 1):
        sampler = EpochBatches(lengths, 8, "length", 0)
        sampler.set_epoch(number)
        assert seen[12 * number : 12 * (number + 1)] == list(sampler)
