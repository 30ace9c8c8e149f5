"""A trained affine map initialised as soft ZCA whitening. N embeddings, D width."""

import torch
from torch import Tensor, nn

from isotrain.arguments import checked
from isotrain.geometry.rows import finite_rows, wide
from isotrain.geometry.spectra import energy_kept
from isotrain.geometry.whitening import inverse_root, whitening_map
from isotrain.transforms.base import EvalStats, RowTransform, TrainStats
from isotrain.transforms.fitted import NonNegativeFloat, Positive


class ZCADense(RowTransform):
    """Isotropy layer `[N, D] -> [N, D]`: y = W x + b, trained, initialised as soft ZCA.

    The first `fit` sets W = M and b = −M μ with the mean μ and the symmetric map M of `ZCA` on the
    initial embeddings, which `frozen_zca` keeps fixed. Afterwards W and b change only by gradient,
    with the learning rate of the head (`lr` times `training.head_lr_factor`); weight decay pulls W
    towards 0. Training and evaluation apply the same map; an embedding's output does not depend on
    its batch.

    Half precision is computed in float32, with D² + D parameters.

    Args:
        width: D.
        epsilon: of the initial map, as in `ZCA`.
        keep_scale: of the initial map, as in `ZCA`.

    Raises:
        RuntimeError: training or evaluation before `fit(x)`.

    Soft ZCA: Diera et al. 2024; training it further is ours.

    >>> x = torch.tensor([[3.0, 1.0], [3.0, -1.0], [-3.0, 1.0], [-3.0, -1.0]])
    >>> layer = ZCADense(width=2, epsilon=0.0)
    >>> layer.fit(x)
    >>> layer(x).abs().mul(10).round().tolist()[0]  # √5 each, as with ZCA
    [22.0, 22.0]
    >>> layer.needs_fit(), layer.weight.requires_grad
    (False, True)
    """

    stats: TrainStats = "start"
    eval_stats: EvalStats = "refit"  # the single `fit` is on all training examples
    is_fitted: Tensor

    @checked
    def __init__(
        self,
        width: Positive,
        epsilon: NonNegativeFloat = 0.1,
        keep_scale: bool = True,
    ) -> None:
        super().__init__(width)
        self.epsilon, self.keep_scale = epsilon, keep_scale
        self.weight = nn.Parameter(torch.eye(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("is_fitted", torch.tensor(False))

    def forward(self, x_ND: Tensor) -> Tensor:
        """W x + b."""
        self._check_width(x_ND)
        if self.needs_fit() and (torch.is_grad_enabled() or not self.training):
            raise RuntimeError(
                "this layer starts from embeddings: call fit(x) first (the trainer does so before "
                "the first evaluation)"
            )
        with torch.autocast(x_ND.device.type, enabled=False):
            wide_ND = wide(x_ND)
            weight_DD, bias_D = self.weight.to(wide_ND.dtype), self.bias.to(wide_ND.dtype)
            y_ND = wide_ND @ weight_DD.T + bias_D
            self.counters = {}
            if self.training:
                self.counters["energy_kept"] = energy_kept(wide_ND.detach(), y_ND.detach())
            return y_ND.to(x_ND.dtype)

    @torch.no_grad()
    def fit(self, x_ND: Tensor | None = None, labels_N: Tensor | None = None) -> None:
        """Initialise with the soft ZCA of these embeddings; without any, a no-op."""
        if x_ND is None:
            return
        rows_ND = finite_rows(wide(x_ND))
        with torch.autocast(x_ND.device.type, enabled=False):
            zca = whitening_map(rows_ND, self.epsilon, self.keep_scale, inverse_root)
        self.weight.copy_(zca.matrix_DD.T)
        self.bias.copy_(-zca.centre_D @ zca.matrix_DD)
        self.is_fitted.fill_(True)

    def needs_fit(self) -> bool:
        """Whether it is not initialised yet."""
        return not bool(self.is_fitted)
