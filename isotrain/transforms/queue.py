"""A ring buffer of recent embeddings. M capacity, D width, N embeddings per push."""

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from isotrain.arguments import checked
from isotrain.geometry.rows import finite_rows

Capacity = Annotated[int, Field(ge=2)]  # embeddings in a queue


class RowQueue(nn.Module):
    """Recent finite embeddings, at most M, and optionally their labels; saved in checkpoints.

    One push fills at most an eighth of it (`1 / span`), evenly spaced: a batch has texts of similar
    length, and the queue should cover several batches. Memory is M·D·4 bytes from the start. Labels
    keep their dtype, integer or floating. Counts are Python numbers, to avoid GPU synchronisation.

    >>> queue = RowQueue(capacity=8, width=1)
    >>> for step in range(9):
    ...     queue.push(torch.tensor([[float(step)], [-1.0]]))
    >>> sorted(queue.rows().flatten().tolist())
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    """

    rows_MD: Tensor
    labels_M: Tensor | None

    @checked
    def __init__(
        self,
        capacity: Capacity,
        width: int,
        span: int = 8,
        has_labels: bool = False,
    ) -> None:
        super().__init__()
        self.most_per_push = max(1, capacity // span)
        self.register_buffer("rows_MD", torch.zeros(capacity, width))
        self.register_buffer("labels_M", torch.zeros(capacity) if has_labels else None)
        self.n_filled = 0
        self.next_slot = 0
        self.batch_rows = 0  # finite embeddings of the largest push

    def rows(self) -> Tensor:
        """The stored embeddings, `[≤ M, D]`, in no particular order."""
        return self.rows_MD[: self.n_filled]

    def labels(self) -> Tensor | None:
        """Their labels, `[≤ M]`, in the same order; None without labels."""
        return None if self.labels_M is None else self.labels_M[: self.n_filled]

    @torch.no_grad()
    def push(
        self, x_ND: Tensor, n_batch: int | None = None, labels_N: Tensor | None = None
    ) -> None:
        """Add detached finite embeddings, replacing the oldest; non-finite ones are skipped.

        `n_batch`: size of the largest batch that they come from, if they come from several.
        """
        x_ND, labels_N = finite_labelled(x_ND.detach().to(self.rows_MD.dtype), labels_N)
        n, capacity = len(x_ND), len(self.rows_MD)
        n_added = min(n, self.most_per_push)
        offset_N = torch.arange(n_added, device=x_ND.device)
        row_N, slots_N = offset_N * n // max(1, n_added), (offset_N + self.next_slot) % capacity
        self.rows_MD[slots_N] = x_ND[row_N]
        if self.labels_M is not None and labels_N is not None:
            if self.labels_M.is_floating_point() != labels_N.is_floating_point():
                with torch.inference_mode(False):  # the first labels may come in an evaluation
                    self.labels_M = self.labels_M.to(labels_N.dtype)
            self.labels_M[slots_N] = labels_N[row_N].to(self.labels_M.dtype)
        self.next_slot = (self.next_slot + n_added) % capacity
        self.n_filled = min(capacity, self.n_filled + n_added)
        self.batch_rows = max(self.batch_rows, min(n, n_batch or n))

    def get_extra_state(self) -> Tensor:
        """The counts, for a checkpoint."""
        return torch.tensor([self.n_filled, self.next_slot, self.batch_rows])

    def set_extra_state(self, state: Tensor) -> None:
        """The counts of a checkpoint."""
        self.n_filled, self.next_slot, self.batch_rows = state.tolist()

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        if self.labels_M is not None and (stored_M := state.get(f"{prefix}labels_M")) is not None:
            self.labels_M = self.labels_M.to(stored_M.dtype)  # classes or scores
        super()._load_from_state_dict(state, prefix, *rest)


def finite_labelled(x_ND: Tensor, labels_N: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The embeddings that are finite and have a finite label, and the labels."""
    if labels_N is None:
        return finite_rows(x_ND), None
    finite_N = torch.isfinite(x_ND.detach()).all(dim=1) & torch.isfinite(labels_N)
    return (x_ND, labels_N) if bool(finite_N.all()) else (x_ND[finite_N], labels_N[finite_N])
