"""On-disk cache of hidden states of the training examples after frozen blocks.

A sequences of a batch, T tokens, N tokens of a group, D hidden.
"""

import hashlib
import json
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from isotrain.encoders.base import Encoder
from isotrain.encoders.freezing import levels
from isotrain.runs.files import make_inside
from isotrain.types import Batch, Example

GROUP = 64  # sequences computed together
OF_NO_STATE = ("_name_or_path",)  # entries of a configuration that change no state: where it lies

Compute = Callable[[Sequence[Sequence[int]], Sequence[Sequence[int]]], Tensor]
"""Token and segment ids of some sequences to their states `[A, T, D]`."""


class FrozenPrefix:
    """States after block `level` for the sequences of a training set, as float32 in one file.

    Sequences are computed in groups of similar length that depend only on the set, so that a state
    is bit-identical in any run and order of requests. Each group has a checksum; a missing or
    damaged group is recomputed. Processes and runs may share the files.

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
        lengths = np.array([len(ids) for ids, _ in self.sequences])
        self.starts = np.concatenate([[0], lengths.cumsum()])
        by_length = np.argsort(-lengths, kind="stable")
        self.groups = [by_length[i : i + GROUP] for i in range(0, len(by_length), GROUP)]
        self.group_of = np.empty(len(lengths), dtype=int)
        for number, group in enumerate(self.groups):
            self.group_of[group] = number
        make_inside(folder.parent, folder)
        self.states = _mapped(folder / f"{key}.states", np.float32, (self.starts[-1], width))
        self.checksums = _mapped(folder / f"{key}.crc32", np.uint32, (len(self.groups),))
        self._sound: set[int] = set()  # groups verified by this process

    def __call__(self, batch: Batch) -> Tensor:
        """The states `[A, T, D]` of a batch, 0 at pads."""
        numbers = [
            self.first_of[index] + q
            for q in range(batch.n_sequences)
            for index in batch.index.tolist()
        ]
        for group in {int(self.group_of[number]) for number in numbers} - self._sound:
            self._make_sound(group)
        states = torch.zeros(*batch.input_ids.shape, self.states.shape[1])
        for row, number in enumerate(numbers):
            tokens = self.states[self.starts[number] : self.starts[number + 1]]
            states[row, : len(tokens)] = torch.from_numpy(np.asarray(tokens))
        return states.to(batch.input_ids.device)

    def _make_sound(self, group: int) -> None:
        """Compute the states of a group, unless those on disk match their checksum."""
        members = self.groups[group]
        spans = [slice(self.starts[number], self.starts[number + 1]) for number in members]
        if self.checksums[group] != _checksum([self.states[span] for span in spans]):
            ids, types = zip(*(self.sequences[number] for number in members), strict=True)
            states = self.compute(ids, types).float().cpu().numpy()
            for state, span in zip(states, spans, strict=True):
                self.states[span] = state[: span.stop - span.start]
            self.checksums[group] = _checksum([self.states[span] for span in spans])
        self._sound.add(group)


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


def _mapped(path: Path, dtype: type, shape: tuple[int, ...]) -> np.memmap:
    """Memory-map an array; a file of another size is resized first."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    with path.open("ab") as file:
        if file.tell() != n_bytes:
            file.truncate(n_bytes)
            if sys.platform == "linux":  # a full disk would raise SIGBUS at a later write
                os.posix_fallocate(file.fileno(), 0, n_bytes)
    return np.memmap(path, dtype, "r+", shape=shape)


def _checksum(parts: Sequence[np.ndarray]) -> int:
    """CRC-32 of arrays; never 0, the value in a new file."""
    value = 0
    for part in parts:
        value = zlib.crc32(np.ascontiguousarray(part).data, value)
    return value or 1
