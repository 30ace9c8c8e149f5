"""The isotropy layers of a run as one affine map of the pooled vector, or why they are none.

N rows, B rows of dev, P vectors per row, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import cast

import torch
from torch import Tensor, nn

from isotrain.export.affine import Affine, NotAffineError, affine_of, identity
from isotrain.export.errors import CannotExportError
from isotrain.export.rebuilt import Rebuilt
from isotrain.transforms.base import RowTransform

Rows = Callable[[Tensor], Tensor]


def layer_sites(rebuilt: Rebuilt) -> list[str]:
    """Sites with a layer that does something, in the order of the forward pass."""
    model = rebuilt.model
    return [site for site in model.sites if model.transforms[site].changes_rows]


def known_rows(rebuilt: Rebuilt, site: str) -> Tensor:
    """Rows that stood before a layer: of dev, and those of training that its queue still has."""
    dev_ND = rebuilt.double.site_embeddings[site].before
    layer = rebuilt.model.transforms[site]
    recent_MD = cast(RowTransform, layer).recent_rows()
    return dev_ND if recent_MD is None else torch.cat([dev_ND, recent_MD.to(dev_ND)])


def check_layers(rebuilt: Rebuilt) -> None:
    """Refuse layers that stand inside the encoder, or whose results depend on batch-mates.

    Raises:
        CannotExportError: which, and what to do.
    """
    for site in layer_sites(rebuilt):
        if site not in ("pooled", "tokens"):
            raise CannotExportError(
                f"a layer can be exported behind the encoder, and site={site} is inside of it: the "
                "blocks of transformers have no place for it; train with site=[pooled] or [tokens]"
            )
        rows_ND = known_rows(rebuilt, site)
        function, half = in_double(rebuilt.model.transforms[site]), max(1, len(rows_ND) // 2)
        if not torch.allclose(function(rows_ND)[:half], function(rows_ND[:half]), 1e-9, 1e-9):
            raise CannotExportError(
                f"a row's result must not depend on its batch-mates, and that of the layer at "
                f"{site} does (isotropy.eval_stats=batch); train with isotropy.eval_stats=frozen"
            )


def folded(rebuilt: Rebuilt) -> Affine:
    """What the layers do to the pooled vector: x A + b.

    At `pooled` it is the layer's own map. At `tokens` each row is mapped alone: with the first or
    the last token the pooled vector is one of them, and a mean of x A + b is that of the mean.

    Raises:
        NotAffineError: they are no such map, and why.
    """
    model = rebuilt.model
    found = identity(rebuilt.double.hidden_states[0].shape[-1])
    for site in layer_sites(rebuilt):
        if site == "tokens" and model.rows != "all":
            raise NotAffineError(
                "the layer at tokens leaves CLS and SEP as they are (rows=no_special), so that it "
                "is no map of their mean with the others"
            )
        layer = model.transforms[site]
        name = f"the layer at {site} ({type(layer).__name__})"
        found = found.then(affine_of(in_double(layer), known_rows(rebuilt, site), name))
    return found


def head_map(rebuilt: Rebuilt) -> Affine:
    """What the head makes of the one pooled vector of a row: x A + b.

    Raises:
        NotAffineError: it is no such map.
    """
    head = in_double(rebuilt.model.head)
    pooled_BD = rebuilt.double.pooled[:, 0]
    name = f"the head ({type(rebuilt.model.head).__name__})"
    return affine_of(lambda x_ND: head(x_ND[:, None]), pooled_BD, name)


def in_double(module: nn.Module) -> Rows:
    """A module in evaluation mode as a function of float64 rows; itself stays as it is."""
    copy = deepcopy(module).double().eval()

    @torch.no_grad()
    def apply(x_ND: Tensor) -> Tensor:
        return copy(x_ND)  # type: ignore[no-any-return]

    return apply
