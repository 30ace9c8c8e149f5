"""RNG streams: each part of a run has its own, whichever other parts there are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def own_draws(seed: int, part: str) -> Iterator[None]:
    """A block in which torch draws on the CPU from the part's own RNG stream.

    It is a function of seed and name; after the block, the global stream goes on where it was.

    >>> from torch import rand
    >>> def drawn(seed, part):
    ...     with own_draws(seed, part):
    ...         return rand(()).item()
    >>> [drawn(0, "a") == other for other in (drawn(0, "a"), drawn(0, "b"), drawn(1, "a"))]
    [True, False, False]
    """
    digest = hashlib.sha256(f"{seed} {part}".encode()).digest()
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which sets the streams of accelerators too.
        torch.default_generator.manual_seed(int.from_bytes(digest[:8]) >> 1)
        yield
