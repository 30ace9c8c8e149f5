"""Random streams and directions that follow from seeds alone. D dimensions."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from isotrain.geometry.rows import hash_ids


@contextmanager
def rng_stream(seed: int, part: str) -> Iterator[None]:
    """Within the block, torch draws on the CPU from the component's RNG stream.

    The stream depends on seed and name only; after the block, the global stream is restored.

    >>> from torch import rand
    >>> def drawn(seed, part):
    ...     with rng_stream(seed, part):
    ...         return rand(()).item()
    >>> [drawn(0, "a") == other for other in (drawn(0, "a"), drawn(0, "b"), drawn(1, "a"))]
    [True, False, False]
    """
    digest = hashlib.sha256(f"{seed} {part}".encode()).digest()
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which also seeds accelerators.
        torch.default_generator.manual_seed(int.from_bytes(digest[:8]) >> 1)
        yield


def slices_of_step(x_ND: Tensor, n_slices: int, seed: int, n_steps: Tensor) -> Tensor:
    """Unit directions `[D, M]`, uniform on the sphere, of the type and device of `x`.

    They follow from `seed` and the number of optimizer steps done alone: the same in every process
    and after a resumption, whatever torch has drawn.

    >>> drawn = slices_of_step(torch.zeros(2, 3), 4, 0, torch.tensor(7))
    >>> tuple(drawn.shape), [round(length, 5) for length in drawn.norm(dim=0).tolist()]
    ((3, 4), [1.0, 1.0, 1.0, 1.0])
    """
    key = hash_ids(hash_ids(torch.tensor(seed)) + n_steps.cpu())
    generator = torch.Generator().manual_seed(int(key))
    size = x_ND.shape[1], n_slices
    direction_DM = torch.randn(size, generator=generator, dtype=torch.float64)
    return (direction_DM / direction_DM.norm(dim=0)).to(x_ND)
