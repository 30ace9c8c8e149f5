"""Outlier dimensions zeroed or clipped, as an isotropy layer. N embeddings, D width."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.transforms.fitted import FittedTransform, NonNegativeFloat, Positive
from isotrain.transforms.standardize import column_moments


@dataclass(frozen=True)
class CutTailsStats:
    """The cut dimensions, and the bound."""

    cut_D: Tensor  # bool
    bound: Tensor  # 0-d: their coordinates are clipped to ± this; 0 = zeroed
    counters: dict[str, Tensor]


class CutTails(FittedTransform):
    """Isotropy layer `[N, D] -> [N, D]`: zero or clip outlier dimensions (tails).

    Cut are the given `dims`, or else every dimension with |mean_i| > threshold·rms (over all
    entries) or a variance above variance_factor × the mean variance. Their coordinates are clipped
    to ± clip_sd·s, s² the mean square (about zero) over the dimensions that are not cut. A cloud
    without scatter is unchanged, and is counted.

    All other coordinates and gradients are bit-identical; a coordinate at or beyond the bound has
    no gradient. Equivariant to uniform scale; axis-dependent. Which dimensions dominate depends on
    the checkpoint, so the default detects them. At most one dimension in threshold² is detected by
    its mean, and none at D ≤ threshold².

    Args:
        width: D.
        dims: dimensions to cut, counted from 0; None = detect them.
        clip_sd: bound, in rms of the dimensions that are not cut; 0 = zeroed, as published.
        threshold: |mean| of a dimension, in rms over all entries, above which it is cut.
        variance_factor: variance, × the mean variance over dimensions, above which it is cut.

    Raises:
        ValueError: a dimension that is not among the D, or all of them.

    Luo 2020 (zeroing given dimensions, post hoc); detection by both rules and clipping are ours.

    >>> layer = CutTails(width=2, dims=[1], clip_sd=0.0, stats="batch")
    >>> layer(torch.tensor([[1.0, 9.0], [-1.0, 8.0]])).tolist()
    [[1.0, 0.0], [-1.0, 0.0]]
    """

    @checked
    def __init__(
        self,
        width: Positive,
        dims: Sequence[int] | None = None,
        clip_sd: NonNegativeFloat = 3.0,
        threshold: Annotated[float, Field(ge=2)] = 3.0,  # with both at 2 at least a quarter is kept
        variance_factor: Annotated[float, Field(ge=2)] = 5.0,
        **statistics: Any,
    ) -> None:
        if dims is not None and not set(dims) < set(range(width)):
            raise ValueError(
                f"dims must be some, not all, of 0 to width − 1 = {width - 1}, got {list(dims)}; "
                "correct them, or leave dims=null to detect them"
            )
        empty = CutTailsStats(torch.zeros(width, dtype=torch.bool), torch.tensor(0.0), {})
        super().__init__(width, empty, **statistics)
        self.dims = None if dims is None else list(dims)
        self.clip_sd = clip_sd
        self.threshold, self.variance_factor = threshold, variance_factor

    @torch.no_grad()
    def estimate(self, x_ND: Tensor, to_freeze: bool = False) -> CutTailsStats:
        """Dimensions to cut, and their bound, without gradient."""
        mean_D, variance_D, scattered, counters = column_moments(x_ND)
        square_D = mean_D.square() + variance_D
        if self.dims is None:
            is_far_D = mean_D.abs() > self.threshold * square_D.mean().sqrt()
            cut_D = is_far_D | (variance_D > self.variance_factor * variance_D.mean())
        else:
            cut_D = torch.zeros_like(mean_D, dtype=torch.bool)
            cut_D[self.dims] = True
        cut_D = cut_D & scattered
        bound = self.clip_sd * square_D[~cut_D].mean().sqrt()
        return CutTailsStats(cut_D, bound, counters | {"dims_cut": cut_D.sum().float()})

    def transform(self, x_ND: Tensor, stats: CutTailsStats, are_last: bool) -> Tensor:
        """Embeddings whose coordinates in the cut dimensions are within ± the bound."""
        beyond_ND = stats.cut_D.bool() & (x_ND.abs() >= stats.bound)
        return torch.where(beyond_ND, stats.bound * x_ND.detach().sign(), x_ND)
