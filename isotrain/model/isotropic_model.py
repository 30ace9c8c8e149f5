"""The model: encoder, isotropy layers at their sites, pooling, head. No Lightning, no config.

A = Q·B sequences, T tokens, D hidden, P vectors per example, N rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from isotrain.encoders.base import Encoder
from isotrain.geometry.rows import put_rows, row_ids, take_rows
from isotrain.model.distributed import batch_places, gather_in_order, n_processes
from isotrain.transforms.base import RowTransform
from isotrain.types import Batch, Edit, ModelOutput, Pooling, SiteRows

TokenRows = Literal["all", "no_special"]


def block_of(site: str, n_blocks: int) -> int | None:
    """The block whose output `site` acts on, 1-based; None for `pooled` and `tokens`.

    Raises:
        ValueError: any other name, or a block the encoder does not have.

    >>> block_of("layer_3", 6), block_of("pooled", 6)
    (3, None)
    """
    if site in ("pooled", "tokens"):
        return None
    blocks = {f"layer_{k}": k for k in range(1, n_blocks + 1)}
    if site not in blocks:
        raise ValueError(
            f"site must be pooled, tokens or layer_1 to layer_{n_blocks} for this encoder, "
            f"got {site!r}"
        )
    return blocks[site]


class IsotropicModel(nn.Module):
    """Encoder → (layer_k, tokens: isotropy layer) → pooling → (pooled: isotropy layer) → head.

    Args:
        encoder: gives all L+1 hidden states.
        pooling: token states to `[B, P, D]`.
        head: `[B, P, D]` to logits.
        transforms: one isotropy layer per site: pooled, tokens or layer_k (output of block k).
        rows: at token sites, every non-pad row (`all`) or without CLS and SEP (`no_special`).
        sync: with several processes, training statistics come from the rows of all of them, in
            the order one process would hold them in; otherwise each process takes its own batch
            (a queue is fed the rows of all in any case).
    """

    def __init__(
        self,
        encoder: Encoder,
        pooling: Pooling,
        head: nn.Module,
        transforms: Mapping[str, RowTransform],
        rows: TokenRows = "all",
        sync: bool = True,
    ) -> None:
        super().__init__()
        if rows not in ("all", "no_special"):
            raise ValueError(f"rows must be all or no_special, got {rows!r}")
        self.encoder, self.pooling, self.head = encoder, pooling, head
        self.blocks_of = {site: block_of(site, encoder.n_blocks) for site in transforms}
        self.transforms = nn.ModuleDict(transforms)
        # in the order of the forward pass
        order = {"tokens": encoder.n_blocks + 1, "pooled": encoder.n_blocks + 2}
        self.sites = sorted(transforms, key=lambda site: self.blocks_of[site] or order[site])
        self.rows, self.sync = rows, sync

    def forward(self, batch: Batch) -> ModelOutput:
        """All hidden states, the rows around every site, pooled vectors and logits."""
        ids_AT = row_ids(batch.index, batch.n_sequences, batch.input_ids.shape[1])
        mask_AT = batch.attention_mask.bool()
        if self.rows == "no_special":
            mask_AT = mask_AT & ~batch.special_mask.bool()
        site_rows: dict[str, SiteRows] = {}

        def at_site(
            site: str,
            before_ND: Tensor,
            ids_N: Tensor,
            labels_N: Tensor,
            places: Callable[[], Tensor],
        ) -> Tensor:
            places_N = places().to(ids_N.device) if n_processes() > 1 else None
            after_ND = self._transformed(site, before_ND, labels_N, places_N)
            site_rows[site] = SiteRows(before_ND, after_ND, ids_N, labels_N, places_N)
            return after_ND

        def at_tokens(site: str, hidden_ATD: Tensor) -> Tensor:
            before_ND = take_rows(hidden_ATD, mask_AT)
            shape = len(batch.index), batch.n_sequences, mask_AT.shape[1]
            labels_A = batch.labels.repeat(batch.n_sequences)
            after_ND = at_site(
                site,
                before_ND,
                ids_AT[mask_AT],
                labels_A[:, None].expand_as(mask_AT)[mask_AT],
                lambda: batch_places(*shape)[mask_AT.cpu()],
            )
            return hidden_ATD if after_ND is before_ND else put_rows(hidden_ATD, mask_AT, after_ND)

        edits: dict[int, Edit] = {
            block: partial(at_tokens, site)
            for site, block in self.blocks_of.items()
            if block is not None
        }
        states = self.encoder(batch, edits)
        last_ATD = states.last
        if "tokens" in self.transforms:
            last_ATD = at_tokens("tokens", last_ATD)
        pooled_BPD = self.pooling(last_ATD, batch)
        if "pooled" in self.transforms:
            n, n_vectors = pooled_BPD.shape[:2]
            ids_N = row_ids(batch.index, 1, n_vectors).flatten()
            after_ND = at_site(
                "pooled",
                pooled_BPD.flatten(0, 1),
                ids_N,
                batch.labels.repeat_interleave(n_vectors),
                lambda: batch_places(n, 1, n_vectors).flatten(),
            )
            pooled_BPD = after_ND.reshape(*pooled_BPD.shape[:2], -1)
        logits_BC = self.head(pooled_BPD)
        return ModelOutput(states.hidden_states, pooled_BPD, logits_BC, site_rows)

    def _transformed(
        self, site: str, before_ND: Tensor, labels_N: Tensor, places_N: Tensor | None
    ) -> Tensor:
        """The rows after the layer; statistics of training may span all processes."""
        layer = self.transforms[site]
        known = [labels_N] if layer.training and layer.reads_labels else []
        if places_N is None or not (self.sync and self.training):
            return layer(before_ND, *known)  # type: ignore[no-any-return]
        all_ND, own_N = gather_in_order(before_ND, places_N)
        known = [gather_in_order(labels, places_N)[0] for labels in known]
        return layer(all_ND, *known)[own_N]  # type: ignore[no-any-return]

    @torch.no_grad()
    def observe(self, rows: Mapping[str, tuple[Tensor, Tensor]]) -> None:
        """Feed each isotropy layer the rows that stood before it, and their labels."""
        for site, layer in self.transforms.items():
            before_ND, labels_N = rows[site]
            labels = [labels_N] if layer.reads_labels else []
            layer.observe(before_ND, *labels)  # type: ignore[operator]
