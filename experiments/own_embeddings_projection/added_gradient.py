"""Ablation of `iso_grad` without its projection: for the study own_embeddings_projection."""

import torch
from torch import Tensor

from isotrain.transforms.iso_grad import IsoGrad, isotropy_gradient


class AddedGradient(IsoGrad):
    """`IsoGrad` that adds ρ·‖g‖·h/‖h‖ as it is: h keeps its part along the task's gradient g."""

    @torch.no_grad()
    def _with_isotropy(self, x: Tensor, g: Tensor) -> Tensor:
        """The gradient to pass on: g plus the added gradient, computed in float32."""
        found = isotropy_gradient(x.float(), self.queue.rows().float())
        if found is None:
            return g
        loss, h = found
        self.gradient_counters = {"isotropy_loss": loss}
        return (g + self.rho * g.float().norm() / h.norm() * h).to(g.dtype)
