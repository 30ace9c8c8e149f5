"""Isotropy through the gradient only: the layer is an identity. N, D, M recent."""

from functools import partial

import torch
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cosine import mean_pairwise_cosine
from isotrain.geometry.kmeans import straight_through
from isotrain.geometry.rows import has_scatter, wide
from isotrain.objectives.istar import istar
from isotrain.transforms.base import RowTransform
from isotrain.transforms.fitted import NonNegativeFloat, Positive, not_compiled
from isotrain.transforms.queue import Capacity, RowQueue

MIN_ROWS = 3  # fewer embeddings always lie on a line


def isotropy_loss(x_ND: Tensor) -> Tensor:
    """(1 − IsoScore) + (mean cosine)² of `x [N, D]`, in [0, 2]; 0 = isotropic. Differentiable.

    The first term measures uneven variance, the second the common direction.

    IsoScore: Rudman et al. 2022; the sum is ours.

    >>> round(isotropy_loss(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])).item(), 3)
    0.622
    """
    return istar(x_ND) + mean_pairwise_cosine(x_ND).square()


def isotropy_gradient(x_ND: Tensor, recent_MD: Tensor) -> tuple[Tensor, Tensor] | None:
    """`isotropy_loss` of recent embeddings and x, and its gradient `[N, D]` with respect to x.

    The value is over all; the gradient is that of `straight_through`: recent embeddings move with
    those of the batch. None for fewer than three embeddings, or without scatter.
    """
    all_ND = torch.cat([recent_MD, x_ND]).detach()
    if len(x_ND) == 0 or len(all_ND) < MIN_ROWS or not has_scatter(all_ND):
        return None
    with torch.enable_grad():
        leaf_ND = x_ND.detach().requires_grad_()
        cloud_ND = straight_through(torch.cat([recent_MD.detach(), leaf_ND]), len(leaf_ND))
        loss = isotropy_loss(cloud_ND)
        (gradient_ND,) = torch.autograd.grad(loss, leaf_ND)
    return loss.detach(), gradient_ND


def conflict_free(gradient_ND: Tensor, task_ND: Tensor, rho: float) -> tuple[Tensor, Tensor]:
    """Project a gradient orthogonally to the task's, rescale it to ρ·‖g‖; and their cosine.

    h − (<h, g>/<g, g>)·g over all entries, scaled to the norm ρ·‖g‖, for h = `gradient_ND` and g =
    `task_ND`. Zeros if nothing is left: g = 0, h = 0, or both parallel up to rounding.

    >>> gradient, task = torch.tensor([[1.0, 1.0]]), torch.tensor([[0.0, 2.0]])
    >>> added, cosine = conflict_free(gradient, task, 0.5)
    >>> added.tolist(), round(cosine.item(), 3)
    ([[1.0, 0.0]], 0.707)
    """
    task_size = task_ND.abs().amax()
    task_norm, task_ND = _unit(task_ND / torch.where(task_size > 0, task_size, 1.0))
    gradient_size = gradient_ND.abs().amax()
    _, gradient_ND = _unit(gradient_ND / torch.where(gradient_size > 0, gradient_size, 1.0))
    cosine = (gradient_ND * task_ND).sum()
    residual_ND = gradient_ND - cosine * task_ND
    residual_ND = residual_ND - (residual_ND * task_ND).sum() * task_ND  # removes rounding error
    length, residual_ND = _unit(residual_ND)
    has_residual = length > 64.0 * torch.finfo(length.dtype).eps
    return torch.where(has_residual, rho * task_size * task_norm, 0.0) * residual_ND, cosine


def _unit(x_ND: Tensor) -> tuple[Tensor, Tensor]:
    """Norm over all entries, and x divided by it; 0 stays 0."""
    norm = x_ND.square().sum().sqrt()
    return norm, x_ND / torch.where(norm > 0, norm, 1.0)


class IsoGrad(RowTransform):
    """Isotropy layer `[N, D] -> [N, D]`: the identity, whose backward adds an isotropy gradient.

    Embeddings pass unchanged, in training and evaluation. In backward the gradient g `[N, D]` from
    the losses after the layer becomes g + ρ·‖g‖·h/‖h‖: h is the gradient of `isotropy_loss` of the
    batch and recent embeddings, minus its projection on g. So <h, g> = 0: to first order, moving
    the embeddings along h does not change those losses. Parameters are shared by embeddings, and
    Adam rescales each, so this does not hold exactly for an optimizer step.

    ‖·‖ and <·,·> are over all embeddings of a call, of all processes. Nothing is added if h is
    undefined: fewer than three embeddings in batch and queue, no scatter, g = 0 or not finite, h
    parallel to g. An embedding with a NaN is left out. Before the first `observe` only the batch is
    used. Half precision is computed in float32, and the sum is rounded back.

    `gradient_counters`, after a backward: `gradient_cosine`, of h and g before the projection
    (below 0 they conflict), `gradient_added` = ‖added‖/‖g‖ (ρ or 0), `isotropy_loss`, and
    `rows_read`, the number of embeddings behind it.

    Args:
        width: D.
        rho: norm of the added gradient relative to g; 0 = none.
        queue_rows: recent embeddings kept (queue_rows·D·4 bytes).

    Gradient projection: Yu et al. 2020, there only for conflicting gradients, here always.

    >>> layer = IsoGrad(width=2, rho=0.5)
    >>> x = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0]], requires_grad=True)
    >>> layer(x)[:, 1].sum().backward()
    >>> round(float(x.grad[:, 1].sum()), 5), round(float(x.grad.norm() ** 2), 5)  # 3 + 3/4
    (3.0, 3.75)
    """

    changes_rows = False
    changes_gradient = True

    @checked
    def __init__(
        self,
        width: Positive,
        rho: NonNegativeFloat = 0.2,
        queue_rows: Capacity = 1024,
    ) -> None:
        super().__init__(width)
        self.rho = rho
        self.queue = RowQueue(queue_rows, width)

    def forward(self, x_ND: Tensor) -> Tensor:
        """The same embeddings."""
        self._check_width(x_ND)
        adds = self.training and self.rho > 0.0 and torch.is_grad_enabled() and x_ND.requires_grad
        return self._followed(x_ND) if adds else x_ND

    @not_compiled
    def _followed(self, x_ND: Tensor) -> Tensor:
        y_ND = x_ND.view_as(x_ND)
        y_ND.register_hook(partial(self._with_isotropy, x_ND.detach()))  # type: ignore[no-untyped-call]
        return y_ND

    def observe(self, x_ND: Tensor, labels_N: Tensor | None = None) -> None:
        """Push embeddings into the queue."""
        self.queue.push(wide(x_ND))

    def recent_rows(self) -> Tensor:
        """The embeddings in the queue, `[≤ M, D]`."""
        return self.queue.rows()

    @torch.no_grad()
    def _with_isotropy(self, x_ND: Tensor, g_ND: Tensor) -> Tensor:
        """The gradient to pass on: g plus the added gradient."""
        with torch.autocast(x_ND.device.type, enabled=False):
            wide_ND, task_ND = wide(x_ND), wide(g_ND)
            finite_N = torch.isfinite(wide_ND).all(dim=1)
            recent_MD = self.queue.rows().to(wide_ND.dtype)
            is_finite = bool(torch.isfinite(task_ND).all())
            isotropy = isotropy_gradient(wide_ND[finite_N], recent_MD) if is_finite else None
            if isotropy is None:
                names = "gradient_cosine", "gradient_added", "isotropy_loss", "rows_read"
                self.gradient_counters = dict.fromkeys(names, wide_ND.new_zeros(()))
                return g_ND
            loss, gradient_ND = isotropy
            gradient_ND = torch.zeros_like(wide_ND).index_put((finite_N,), gradient_ND)
            added_ND, cosine = conflict_free(gradient_ND, task_ND, self.rho)
            norm, _ = _unit(task_ND)
            self.gradient_counters = {
                "gradient_cosine": cosine,
                "gradient_added": _unit(added_ND)[0] / torch.where(norm > 0, norm, 1.0),
                "isotropy_loss": loss,
                "rows_read": finite_N.sum().to(loss) + len(recent_MD),
            }
            return (task_ND + added_ND).to(g_ND.dtype)
