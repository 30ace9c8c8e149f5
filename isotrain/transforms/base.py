"""Base class of isotropy layers. N embeddings, D width, M recent embeddings."""

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn

TrainStats = Literal["batch", "queue", "start"]
EvalStats = Literal["frozen", "refit", "batch"]


class RowTransform(nn.Module):
    """An isotropy layer `[N, D] -> [N, D]`; a subclass defines at least `forward`.

    `forward(x_ND)` changes no state except `counters`. With `reads_labels` it gets the labels `[N]`
    of training examples as second argument, as do `observe` and `fit`.

    Args:
        width: D.

    >>> import torch
    >>> class Halve(RowTransform):
    ...     def forward(self, x_ND: Tensor) -> Tensor:
    ...         return x_ND / 2
    >>> Halve(width=1)(torch.ones(1, 1)).tolist()
    [[0.5]]
    """

    reads_labels: bool = False  # whether statistics depend on labels
    changes_rows: bool = True  # False: the output equals the input, and is measured once
    changes_gradient: bool = False  # backward adds a gradient; it gets all processes' gradient
    stats: TrainStats = "batch"  # source of training statistics; start = the first `fit`
    eval_stats: EvalStats = "frozen"  # refit = `fit` gets embeddings of all training examples
    counters: dict[str, Tensor]  # of the last `forward`, for the log; never read back
    gradient_counters: dict[str, Tensor]  # of the last backward, for the log
    forward: Callable[..., Tensor]

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.counters = {}
        self.gradient_counters = {}

    @property
    def has_statistics(self) -> bool:
        """Whether `fit` freezes anything: true if it is overridden."""
        return type(self).fit is not RowTransform.fit

    @property
    def remembers(self) -> bool:
        """Whether `observe` stores embeddings: true if it is overridden."""
        return type(self).observe is not RowTransform.observe

    def observe(self, x_ND: Tensor, labels_N: Tensor | None = None) -> None:
        """Store recent embeddings; called once per optimizer step. By default a no-op."""

    def fit(self, x_ND: Tensor | None = None, labels_N: Tensor | None = None) -> None:
        """Freeze the statistics for evaluation. By default a no-op."""

    def needs_fit(self) -> bool:
        """Whether `fit` would change anything before an evaluation."""
        return self.has_statistics

    def _check_width(self, x_ND: Tensor) -> None:
        if x_ND.ndim != 2 or x_ND.shape[1] != self.width:
            raise ValueError(
                f"embeddings must be [N, {self.width}], got shape {tuple(x_ND.shape)}; flatten "
                "tokens and leave out pads, or make the layer with their width"
            )

    def recent_rows(self) -> Tensor | None:
        """The embeddings behind the statistics, `[≤ M, D]`; None without memory."""
        return None
