"""On-disk cache of hidden states of the training examples after frozen blocks.

A sequences, T tokens, N tokens of a group, D hidden.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from isotrain.encoders.base import Encoder
from isotrain.encoders.freezing import levels
from isotrain.runs.files import replacing
from isotrain.types import Batch, Example

GROUP = 64  # sequences computed together
OF_NO_STATE = ("_name_or_path",)  # entries of a configuration that change no state: where it lies

Compute = Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], Tensor]
"""Token and segment ids of some sequences to their states `[A, T, D]`."""


class FrozenPrefix:
    """States after block `level` for the sequences of a training set, as float32 on disk.

    Sequences are computed in groups of similar length that depend only on the set, so that a state
    is bit-identical in any run and order of requests. A group is one file, `[N, D]`, written
    atomically; one that is missing or cut off is computed again. Processes and runs may share them.

    Args:
        folder: of the files.
        key: identifies the states, see `prefix_key`.
        examples: the training set.
        level: number of lowest blocks that are skipped for a batch.
        width: D.
        compute: computes the states of some sequences.
    """

    def __init__(
        self,
        folder: Path,
        key: str,
        examples: Sequence[Example],
        level: int,
        width: int,
        compute: Compute,
    ) -> None:
        self.level, self.compute = level, compute
        self.sequences = [
            (ids, types)
            for example in examples
            for ids, types in zip(example.input_ids, example.token_type_ids, strict=True)
        ]
        self.first_of = {
            e.index: i * len(e.input_ids) for i, e in enumerate(examples)
        }  # index of an example to index of its first sequence
        self.lengths = np.array([len(ids) for ids, _ in self.sequences])
        by_length = np.argsort(-self.lengths, kind="stable")
        self.groups = [by_length[i : i + GROUP] for i in range(0, len(by_length), GROUP)]
        self.group_of, self.start_of = np.empty((2, len(self.lengths)), dtype=int)
        for number, group in enumerate(self.groups):
            self.group_of[group] = number
            self.start_of[group] = self.lengths[group].cumsum() - self.lengths[group]
        self.folder, self.width = folder / key, width
        self.folder.mkdir(parents=True, exist_ok=True)
        self.states: dict[int, np.ndarray] = {}  # of a group, mapped from its file

    def __call__(self, batch: Batch) -> Tensor:
        """The states `[A, T, D]` of a batch, 0 at pads."""
        numbers = [
            self.first_of[index] + q
            for q in range(batch.n_sequences)
            for index in batch.index.tolist()
        ]
        states = torch.zeros(*batch.input_ids.shape, self.width)
        for row, number in enumerate(numbers):
            start, length = self.start_of[number], self.lengths[number]
            tokens = self._states_of(int(self.group_of[number]))[start : start + length]
            states[row, :length] = torch.from_numpy(np.asarray(tokens))
        return states.to(batch.input_ids.device)

    def _states_of(self, group: int) -> np.ndarray:
        """The states `[N, D]` of a group, from its file or computed into it."""
        if group in self.states:
            return self.states[group]
        members, file = self.groups[group], self.folder / f"{group}.npy"
        shape = (int(self.lengths[members].sum()), self.width)
        with suppress(FileNotFoundError, EOFError, ValueError):  # not there, or cut off
            self.states[group] = np.load(file, mmap_mode="c")
        if group not in self.states or self.states[group].shape != shape:
            ids, types = zip(*(self.sequences[number] for number in members), strict=True)
            found = self.compute(ids, types).float().cpu().numpy()
            parts = [x[:n] for x, n in zip(found, self.lengths[members], strict=True)]
            with replacing(file) as opened:
                np.save(opened, np.concatenate(parts))
            self.states[group] = np.load(file, mmap_mode="c")
        return self.states[group]


def prefix_key(encoder: Encoder, level: int, examples: Sequence[Example], precision: str) -> str:
    """Cache key of the states after block `level`: model, configuration, tokens and precision."""
    config = {k: v for k, v in encoder.model.config.to_dict().items() if k not in OF_NO_STATE}
    model = f"{type(encoder.model)} {json.dumps(config, sort_keys=True, default=str)}"
    digest = hashlib.sha256(f"{level} {precision} {GROUP} {model}".encode())
    level_of = levels(encoder)
    below = [(n, x) for n, x in encoder.named_parameters() if level_of[n] <= level]
    for name, tensor in [*below, *encoder.named_buffers()]:
        digest.update(name.encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    for example in examples:
        digest.update(repr((example.input_ids, example.token_type_ids)).encode())
    return digest.hexdigest()[:32]
