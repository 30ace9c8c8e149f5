"""Layers and a callback of the study start_loss. N embeddings, D width."""

from typing import Any

import pytorch_lightning as pl
import torch
from safetensors.torch import load_file
from torch import Tensor

from isotrain.transforms.base import RowTransform
from isotrain.transforms.mean import Mean


class GivenMean(RowTransform):
    """y = x − m, m the mean that the `Mean` of another run has stored with its weights.

    Args:
        width: D.
        file: its weights.safetensors.
    """

    def __init__(self, width: int, file: str) -> None:
        super().__init__(width)
        (mean,) = (
            x for name, x in load_file(file).items() if name.endswith("transforms.pooled.centre_KD")
        )
        self.register_buffer("mean_D", mean[0])

    def forward(self, x: Tensor) -> Tensor:
        """x − m, in the type of x."""
        return x - self.mean_D.to(x.dtype)


class TurnedMean(Mean):
    """y = x − m + c: the mean m goes, and a cone in a direction drawn once comes.

    Args:
        width: D.
        norm: length of c; None = ‖m‖.
    """

    def __init__(self, width: int, norm: float | None = None, **statistics: Any) -> None:
        super().__init__(width, **statistics)
        self.norm = norm
        drawn = torch.randn(width, generator=torch.Generator().manual_seed(0))
        self.register_buffer("direction_D", drawn / drawn.norm())

    def remove(self, x: Tensor, stats: Any, assignment: Tensor) -> Tensor:
        """x − m + c."""
        length = stats.centre_KD[0].norm() if self.norm is None else self.norm
        cone = length * self.direction_D.to(x.dtype)
        return super().remove(x, stats, assignment) + cone


class MeanShare(pl.Callback):
    """Log where the gradient at the pooled embeddings points, in each recorded step.

    `optim/mean_share` is Σ (g·m̂)²/Σ ‖g‖² over the batch, m̂ the direction of its mean;
    `optim/common_share` is N·‖ḡ‖²/Σ ‖g‖², what all embeddings of the batch have in common.
    """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Watch the pooling; a layer that changes nothing is not in the gradient's path."""
        self.shares: dict[str, float] = {}
        self.handle = pl_module.model.pooling.register_forward_hook(self._watch)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Let it go."""
        self.handle.remove()

    def on_after_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Hand the shares to the record of the step."""
        pl_module.of_callbacks |= self.shares

    def _watch(self, pooling: torch.nn.Module, args: tuple[Any, ...], x: Tensor) -> None:
        if x.requires_grad:
            mean = x.detach().float().flatten(0, 1).mean(dim=0)
            x.register_hook(lambda g: self._note(g.float().flatten(0, 1), mean / mean.norm()))

    def _note(self, g: Tensor, direction: Tensor) -> None:
        total = g.square().sum()
        along = (g @ direction).square().sum()
        common = len(g) * g.mean(dim=0).square().sum()
        self.shares = {
            "optim/mean_share": float(along / total),
            "optim/common_share": float(common / total),
        }
