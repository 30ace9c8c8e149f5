"""Batches: token ids padded to the longest in the batch, in a seeded order."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, Dataset, Sampler, SequentialSampler

from isotrain.config.schema import batches_of
from isotrain.console import spinner
from isotrain.model.distributed import of_all_processes
from isotrain.runs.lost_input import lost_input
from isotrain.tasks.base import Task
from isotrain.tasks.data.cache import encode_cached
from isotrain.tasks.data.encoding import collate
from isotrain.tasks.data.perturbations import NOTHING, Changes, apply_changes, subset
from isotrain.types import Batch, Example

NO_LIMIT: Mapping[str, int | None] = {}  # of scored examples
POOL_BATCHES = 50  # lengths are sorted within this many batches

Batching = Literal["length", "random"]


if TYPE_CHECKING:
    OwnOrder = Sampler[list[int]]
else:
    OwnOrder = SequentialSampler  # Lightning would replace another for trainer.overfit_batches


class BatchedExamples(Dataset[Batch]):
    """Examples accessed one batch at a time: item `[i, j, ...]` is a `Batch`."""

    def __init__(self, examples: Sequence[Example], pad_id: int) -> None:
        self.examples, self.pad_id = examples, pad_id

    def __getitem__(self, numbers: Sequence[int]) -> Batch:
        return collate([self.examples[i] for i in numbers], self.pad_id)

    def __len__(self) -> int:
        """For Lightning's sampler alone, which would divide batches a second time."""
        raise TypeError(
            "the batches are divided between the processes already: give the Trainer "
            "use_distributed_sampler=False"
        )


class EpochBatches(OwnOrder):
    """Example indices of each batch of an epoch, a pure function of (seed, epoch).

    `length` sorts by length within pools of 50 shuffled batches and then shuffles the batches,
    to reduce padding; `random` only shuffles. Every example occurs once per epoch. Rank r takes
    every world-th example of a batch from the r-th on, and a last batch with fewer examples than
    processes is merged into another one. A resumed run starts at (epoch, completed batches).
    With `repeats` every epoch has the batches of the first, as `trainer.overfit_batches` needs.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        batch_size: int,
        batching: Batching,
        seed: int,
        rank: int = 0,
        world: int = 1,
        start: tuple[int, int] = (0, 0),
    ) -> None:
        self.lengths = torch.tensor(lengths)
        self.batch_size, self.batching, self.seed = batch_size, batching, seed
        self.rank, self.world, self.start = rank, world, start
        self.epoch, self.repeats = 0, False

    def set_epoch(self, epoch: int) -> None:
        """Called by the trainer before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Number of batches of a whole epoch."""
        return batches_of(len(self.lengths), self.batch_size, self.world)

    def __iter__(self) -> Iterator[list[int]]:
        # A generator: the epoch is read at the first batch, after the trainer has set it.
        epoch, n_done = self.start
        batches = self.batches(0 if self.repeats else self.epoch)
        for batch in batches[n_done if self.epoch == epoch else 0 :]:
            yield batch[self.rank :: self.world]

    def batches(self, epoch: int) -> list[list[int]]:
        """All batches of an epoch, over all ranks."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        order = torch.randperm(len(self.lengths), generator=generator)
        batches = []
        if self.batching == "random":
            batches = list(order.split(self.batch_size))
        else:
            for pool in order.split(POOL_BATCHES * self.batch_size):
                pool = pool[self.lengths[pool].argsort(descending=True, stable=True)]
                batches += pool.split(self.batch_size)
            batches = [batches[i] for i in torch.randperm(len(batches), generator=generator)]
        merged_batches = [batch.tolist() for batch in batches if len(batch) >= self.world]
        for batch in batches:
            if len(batch) < self.world and merged_batches:
                merged_batches[-1] += batch.tolist()
        return merged_batches


class SortedBatches(OwnOrder):
    """Example indices of evaluation batches of similar lengths, in a fixed shuffled order.

    Every example occurs once. Several processes take whole batches in turn, at least one each.
    """

    def __init__(
        self, lengths: Sequence[int], batch_size: int, rank: int = 0, world: int = 1
    ) -> None:
        size = max(1, min(batch_size, len(lengths) // world))
        batches = torch.tensor(lengths).argsort(descending=True, stable=True).split(size)
        order = torch.randperm(len(batches), generator=torch.Generator().manual_seed(0))
        self.batches = [batches[i].tolist() for i in order[rank::world]]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.batches)


class TaskData(pl.LightningDataModule):
    """The splits of a task, tokenised once.

    Args:
        task: provides examples and their encoding.
        source: of the data sets.
        tokenizer: of the encoder.
        batch_size: examples of a training step, over all processes.
        eval_batch_size: examples of an evaluation step.
        batching: length | random, see `EpochBatches`.
        seed: of the order of training examples, and of their perturbations.
        cache: folder of tokenised data sets; None = no cache.
        changes: perturbations of the training set; a split `holdout` is evaluated like dev.
        name: of the run's folder, the same in every process.
        n_scored: maximum of scored examples of dev and of test, see `subset`; None = all.

    Raises:
        ValueError: in `setup`, as `apply_changes`.
    """

    def __init__(
        self,
        task: Task,
        source: Any,
        tokenizer: Any,
        batch_size: int = 32,
        eval_batch_size: int = 64,
        batching: Batching = "length",
        seed: int = 0,
        cache: Path | None = None,
        changes: Changes = NOTHING,
        name: str = "",
        n_scored: Mapping[str, int | None] = NO_LIMIT,
    ) -> None:
        super().__init__()
        self.task, self.source, self.tokenizer = task, source, tokenizer
        self.batch_size, self.eval_batch_size = batch_size, eval_batch_size
        self.batching, self.seed, self.cache = batching, seed, cache
        self.changes, self.name, self.n_scored = changes, name, n_scored
        self.changed: dict[str, Any] = {}  # effect of the perturbations, for the record
        self.limited: dict[str, dict[str, int]] = {}  # partially scored splits
        self._start = (0, 0)  # (epoch, completed batches) to resume from
        self.examples: dict[str, list[Example]] = {}

    def setup(self, stage: str = "fit") -> None:
        """Read and tokenise, on the first call.

        Raises:
            RuntimeError: processes got different overrides from the launcher, or only some of them
                resume from a checkpoint.
        """
        runs = of_all_processes((self.name, stage))
        if len(set(runs)) > 1:
            raise RuntimeError(
                "the processes of a job must share one configuration, its data and one "
                f"resume.ckpt, and they are at {', '.join(map(' '.join, runs))}; start every rank "
                "with the same overrides, data and output folder"
            )
        if self.examples:
            return
        with spinner(f"reading the examples of {self.task.name}") as update:
            with self.source.reading():
                rows = self.task.load(self.source)
            indices: dict[str, list[int]] = {}
            if self.changes != NOTHING:
                rows, self.changed, indices = apply_changes(
                    rows, self.task, self.changes, self.seed
                )
            self.task.see_training(rows["train"])
            for split, n in self.n_scored.items():
                n_rows = len(rows[split])
                if n is not None and n < n_rows:
                    indices[split] = subset(n_rows, n, split)
                    rows[split] = [rows[split][index] for index in indices[split]]
                    self.limited[split] = {"scored": n, "of": n_rows}
            update(f"tokenising {sum(map(len, rows.values())):,} examples")
            self.examples = {
                split: encode_cached(self.task, split_rows, self.tokenizer, self.cache)
                for split, split_rows in rows.items()
            }
            for split, split_indices in indices.items():  # an example keeps its index
                examples = [replace(e, index=split_indices[e.index]) for e in self.examples[split]]
                self.examples[split] = examples

    def resume(self, epoch: int, n_batches: int) -> None:
        """Resume training after the first `n_batches` of an epoch."""
        self._start = (epoch, n_batches)

    @property
    def n_rows(self) -> dict[str, int]:
        """Number of examples of each split."""
        return {split: len(examples) for split, examples in self.examples.items()}

    @property
    def lost_input(self) -> dict[str, Any]:
        """What each split lost: texts cut, unknown tokens, examples left out; for the record."""
        return lost_input(self.examples, self.task.left_out)

    @property
    def label_majority(self) -> dict[str, float]:
        """Share of the most frequent label in each scored split; empty for regression."""
        return {
            split: max(Counter(e.label for e in examples).values()) / len(examples)
            for split, examples in self.examples.items()
            if split != "train" and examples and all(isinstance(e.label, int) for e in examples)
        }

    def n_batches(self, world: int) -> int:
        """Batches of a whole epoch, each split over `world` processes."""
        return batches_of(len(self.examples["train"]), self.batch_size, world)

    def train_dataloader(self) -> DataLoader[Batch]:
        """Batches of the training split in the order of the current epoch."""
        rank, world = self._process()
        sampler = self._epoch_batches(rank, world, self._start)
        sampler.repeats = bool(self.trainer and self.trainer.overfit_batches)  # type: ignore[attr-defined]
        return self._loader("train", sampler)

    def first_batches(self, n: int | None) -> Iterator[Batch]:
        """The first training batches (None: a whole epoch), undivided in every process."""
        sampler = self._epoch_batches(0, 1, (0, 0))
        return islice(self._loader("train", sampler), n)

    def val_dataloader(self) -> DataLoader[Batch] | list[DataLoader[Batch]]:
        """Batches of dev, or of dev and held-out training examples."""
        dev = self._evaluation("dev")
        return [dev, self._evaluation("holdout")] if "holdout" in self.examples else dev

    def test_dataloader(self) -> DataLoader[Batch]:
        """Batches of test; check `n_rows` first."""
        return self._evaluation("test")

    def _process(self) -> tuple[int, int]:
        """Rank and world size."""
        trainer = self.trainer
        return (trainer.global_rank, trainer.world_size) if trainer else (0, 1)

    def _epoch_batches(self, rank: int, world: int, start: tuple[int, int]) -> EpochBatches:
        lengths = _lengths(self.examples["train"])
        return EpochBatches(lengths, self.batch_size, self.batching, self.seed, rank, world, start)

    def _evaluation(self, split: str) -> DataLoader[Batch]:
        lengths = _lengths(self.examples[split])
        return self._loader(split, SortedBatches(lengths, self.eval_batch_size, *self._process()))

    def _loader(self, split: str, sampler: Sampler[list[int]]) -> DataLoader[Batch]:
        pad_id = self.tokenizer.pad_token_id
        # batch_size=None: an item is a batch. A separate generator: otherwise the loader draws its
        # base seed from the global random state.
        return DataLoader(
            BatchedExamples(self.examples[split], pad_id),
            sampler=sampler,
            batch_size=None,
            generator=torch.Generator().manual_seed(self.seed),
        )


def _lengths(examples: Sequence[Example]) -> list[int]:
    """Length of the longest sequence of each example."""
    return [max(map(len, e.input_ids)) for e in examples]
