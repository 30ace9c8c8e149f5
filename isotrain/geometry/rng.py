"""RNG streams: one per component, independent of the other components of a run."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def own_draws(seed: int, part: str) -> Iterator[None]:
    """Within the block, torch draws on the CPU from the component's RNG stream.

    The stream depends on seed and name only; after the block, the global stream is restored.

    >>> from torch import rand
    >>> def drawn(seed, part):
    ...     with own_draws(seed, part):
    ...         return rand(()).item()
    >>> [drawn(0, "a") == other for other in (drawn(0, "a"), drawn(0, "b"), drawn(1, "a"))]
    [True, False, False]
    """
    digest = hashlib.sha256(f"{seed} {part}".encode()).digest()
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which also seeds accelerators.
        torch.default_generator.manual_seed(int.from_bytes(digest[:8]) >> 1)
        yield
