"""No isotropy layer: rows pass as they are, and are still recorded before and after."""

from __future__ import annotations

from torch import Tensor, nn


class Identity(nn.Module):
    """The rows `[N, D] -> [N, D]` unchanged, the baseline of every comparison.

    `width` is D, as of every layer; nothing depends on it.

    >>> import torch
    >>> Identity(width=2)(torch.ones(1, 2)).tolist()
    [[1.0, 1.0]]
    """

    has_statistics, changes_rows = False, False

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.counters: dict[str, Tensor] = {}

    def forward(self, x_ND: Tensor) -> Tensor:
        """The same tensor."""
        return x_ND

    def observe(self, x_ND: Tensor) -> None:
        """Nothing to remember."""

    def fit(self, x_ND: Tensor | None = None) -> None:
        """Nothing to freeze."""
