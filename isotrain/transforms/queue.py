"""A ring of recent rows, for statistics that one batch is too small for. M capacity, D width."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from isotrain.arguments import Bounds, checked
from isotrain.geometry.rows import finite_rows


class RowQueue(nn.Module):
    """Recent finite rows, at most M, in buffers, so that a checkpoint holds them.

    One push fills at most an eighth of it (`1 / span`), with evenly spaced rows: a batch is one
    length bucket, and the queue shall reach back several. Memory is M·D·4 bytes from the start.

    >>> queue = RowQueue(capacity=8, width=1)
    >>> for step in range(9):
    ...     queue.push(torch.tensor([[float(step)], [-1.0]]))
    >>> sorted(queue.rows().flatten().tolist())
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    """

    rows_MD: Tensor
    n_filled: Tensor
    next_slot: Tensor
    batch_rows: Tensor

    @checked
    def __init__(self, capacity: Annotated[int, Bounds(2)], width: int, span: int = 8) -> None:
        super().__init__()
        self.most_per_push = max(1, capacity // span)
        self.register_buffer("rows_MD", torch.zeros(capacity, width))
        self.register_buffer("n_filled", torch.tensor(0))
        self.register_buffer("next_slot", torch.tensor(0))
        self.register_buffer("batch_rows", torch.tensor(0))  # finite rows of the largest push

    def rows(self) -> Tensor:
        """The rows held now, `[≤ M, D]`, in no particular order."""
        return self.rows_MD[: int(self.n_filled)]

    @torch.no_grad()
    def push(self, x_ND: Tensor, n_batch: int | None = None) -> None:
        """Add detached rows, the oldest leaving first.

        Rows with a NaN or infinity are dropped. `n_batch`: rows of the largest batch that they
        come from, if they come from several.
        """
        x_ND = finite_rows(x_ND.detach().to(self.rows_MD.dtype))
        n, capacity = len(x_ND), len(self.rows_MD)
        if n == 0:
            return
        if n > self.most_per_push:
            evenly = torch.arange(self.most_per_push, device=x_ND.device)
            x_ND = x_ND[evenly * n // self.most_per_push]
        start = int(self.next_slot)
        slots = (torch.arange(len(x_ND), device=x_ND.device) + start) % capacity
        self.rows_MD[slots] = x_ND
        self.next_slot.fill_((start + len(x_ND)) % capacity)
        self.n_filled.fill_(min(capacity, int(self.n_filled) + len(x_ND)))
        self.batch_rows.clamp_(min=min(n, n_batch or n))
