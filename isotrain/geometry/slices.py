"""Random directions of an optimizer step. D dimensions, M slices."""

import torch
from torch import Tensor

from isotrain.geometry.rows import hash_ids


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
    drawn_DM = torch.randn(size, generator=generator, dtype=torch.float64)
    unit_DM: Tensor = drawn_DM / drawn_DM.norm(dim=0)
    return unit_DM.to(x_ND)
