"""Fold the isotropy layers of a run into its head, or explain why not.

An affine map is identified from a function's outputs. N embeddings, B examples of dev, D width in,
E width out. All in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from isotrain.export.rebuilt import Rebuilt
from isotrain.transforms.base import RowTransform

LIMIT = 1e-9  # largest deviation, over the rms of embeddings and results
FAR = 1000  # embeddings this many times as far from their mean are tested too


class Affine(NamedTuple):
    """y = x A + b."""

    matrix_DE: Tensor
    bias_E: Tensor

    def __call__(self, x_ND: Tensor) -> Tensor:
        """`[N, E]`."""
        return x_ND @ self.matrix_DE + self.bias_E

    def then(self, other: Affine) -> Affine:
        """This map and then another: x (A A') + (b A' + b')."""
        return Affine(self.matrix_DE @ other.matrix_DE, other(self.bias_E[None])[0])


class NotAffineError(ValueError):
    """A function is not affine on these embeddings."""


def identity(width: int) -> Affine:
    """The identity map."""
    eye_DD = torch.eye(width, dtype=torch.float64)
    return Affine(eye_DD, torch.zeros(width, dtype=torch.float64))


@torch.no_grad()
def affine_of(function: Callable[[Tensor], Tensor], rows_ND: Tensor, name: str) -> Affine:
    """The affine map that equals `function` on the embeddings: b = f(0), row i of A = f(e_i) − b.

    If the function is affine, the map is unique, to the rounding of float64. This is tested: A and
    b must map each embedding as the function does, to 1e-9 of the rms of all. The same must hold
    1,000 times as far from their mean: a layer may clip only beyond all known embeddings.

    Raises:
        NotAffineError: some differ; the message has their number, the deviation and `name`.
    """
    rows_ND = rows_ND.double()
    width = rows_ND.shape[1]
    probes_ND = torch.cat([torch.zeros_like(rows_ND[:1]), torch.eye(width, dtype=torch.float64)])
    output_NE = function(probes_ND)
    affine = Affine(output_NE[1:] - output_NE[0], output_NE[0])
    mean_D = rows_ND.mean(dim=0)
    far_ND = mean_D + FAR * (rows_ND - mean_D)
    for where, points_ND in (("", rows_ND), (f", {FAR:,} times as far from their mean,", far_ND)):
        actual_NE = function(points_ND)
        deviation_N = (affine(points_ND) - actual_NE).abs().amax(dim=1)
        rms = float(actual_NE.square().mean().sqrt())
        limit = LIMIT * max(rms, float(points_ND.square().mean().sqrt()))
        if n_off := int((~(deviation_N <= limit)).sum()):
            raise NotAffineError(
                f"{name} is no affine map: {n_off:,} of {len(rows_ND):,} embeddings of this run"
                f"{where} are not where the map through 0 and the unit vectors puts them, by up to "
                f"{float(deviation_N.max()):.2g} (rms of what it gives: {rms:.2g})"
            )
    return affine


def layer_sites(rebuilt: Rebuilt) -> list[str]:
    """Sites with a layer other than the identity, in the order of the forward pass."""
    model = rebuilt.model
    return [site for site in model.sites if model.transforms[site].changes_rows]


def layer_inputs(rebuilt: Rebuilt, site: str) -> Tensor:
    """Inputs of a layer: those of dev, and the training embeddings in its queue."""
    dev_ND = rebuilt.double.site_embeddings[site].before
    recent_MD = cast(RowTransform, rebuilt.model.transforms[site]).recent_rows()
    return dev_ND if recent_MD is None else torch.cat([dev_ND, recent_MD.to(dev_ND)])


def check_layers(rebuilt: Rebuilt) -> None:
    """Reject layers inside the encoder, or whose output depends on the rest of the batch.

    Raises:
        ValueError: there is one, with a fix.
    """
    for site in layer_sites(rebuilt):
        if site not in ("pooled", "tokens"):
            raise ValueError(
                f"a layer can be exported behind the encoder, and site={site} is inside of it: the "
                "blocks of transformers have no place for it; train with site=[pooled] or [tokens]"
            )
        rows_ND = layer_inputs(rebuilt, site)
        function, half = in_double(rebuilt.model.transforms[site]), max(1, len(rows_ND) // 2)
        if not torch.allclose(function(rows_ND)[:half], function(rows_ND[:half]), 1e-9, 1e-9):
            raise ValueError(
                f"an embedding's result must not depend on its batch-mates, and that of the layer "
                f"at {site} does (isotropy.eval_stats=batch); train with isotropy.eval_stats=frozen"
            )


def folded(rebuilt: Rebuilt) -> Affine:
    """The effect of the layers on the pooled vector: x A + b.

    At `pooled` it is the layer's map. At `tokens` each token is mapped alone. The pooled vector is
    the first or the last token, or the mean, and x A + b commutes with the mean.

    Raises:
        NotAffineError: they are no such map, with the reason.
    """
    model = rebuilt.model
    affine = identity(rebuilt.encoder.width)
    for site in layer_sites(rebuilt):
        if site == "tokens" and model.rows != "all":
            raise NotAffineError(
                "the layer at tokens leaves CLS and SEP as they are (rows=no_special), so that it "
                "is no map of their mean with the others"
            )
        layer = model.transforms[site]
        name = f"the layer at {site} ({type(layer).__name__})"
        affine = affine.then(affine_of(in_double(layer), layer_inputs(rebuilt, site), name))
    return affine


def head_map(rebuilt: Rebuilt) -> Affine:
    """The head as a map of an example's single pooled vector: x A + b.

    Raises:
        NotAffineError: it is no such map.
    """
    head = rebuilt.model.head
    apply, name = in_double(head), f"the head ({type(head).__name__})"
    return affine_of(lambda x_ND: apply(x_ND[:, None]), rebuilt.double.pooled[:, 0], name)


def in_double(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """A module in evaluation mode as a function of float64 embeddings; it is not modified."""
    copy = deepcopy(module).double().eval()

    @torch.no_grad()
    def apply(x_ND: Tensor) -> Tensor:
        return copy(x_ND)  # type: ignore[no-any-return]

    return apply
