"""The model: encoder, isotropy layers at their sites, pooling, head. No Lightning, no config.

A = Q·B sequences, T tokens, D hidden, P vectors per example, N rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from isotrain.encoders.base import Encoder
from isotrain.geometry.rows import put_rows, row_ids, take_rows
from isotrain.model.distributed import WholeBatch, n_processes, order_keys
from isotrain.transforms.base import RowTransform
from isotrain.types import Batch, Edit, ModelOutput, Pooling, SiteEmbeddings

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
        rows: at token sites, every non-pad token (`all`) or without CLS and SEP (`no_special`).
        sync: with several processes, training statistics come from the embeddings of all of them,
            in the order of one process; otherwise each process takes its own batch (a queue is
            fed the embeddings of all in any case).
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
        self._remembered: dict[str, list[tuple[Tensor, Tensor]]] = {}  # micro-batches by site

    def forward(self, batch: Batch) -> ModelOutput:
        """All hidden states, the embeddings around every site, pooled vectors and logits."""
        mask_AT = batch.attention_mask.bool()
        if self.rows == "no_special":
            mask_AT = mask_AT & ~batch.special_mask.bool()
        site_embeddings: dict[
            str, SiteEmbeddings
        ] = {}  # filled by the sites, in the order of the pass
        edits: dict[int, Edit] = {
            block: partial(self._at_tokens, site, batch, mask_AT, site_embeddings)
            for site, block in self.blocks_of.items()
            if block is not None
        }
        states = self.encoder(batch, edits)
        last_ATD = states.last
        if "tokens" in self.transforms:
            last_ATD = self._at_tokens("tokens", batch, mask_AT, site_embeddings, last_ATD)
        pooled_BPD = self.pooling(last_ATD, batch)
        if "pooled" in self.transforms:
            pooled_BPD = self._at_pooled(batch, site_embeddings, pooled_BPD)
        return ModelOutput(states.hidden_states, pooled_BPD, self.head(pooled_BPD), site_embeddings)

    def remember(self, output: ModelOutput) -> None:
        """Keep the layer inputs of a micro-batch, of all processes, until `observe`."""
        for site, rows in output.site_embeddings.items():
            before_ND, labels_N = rows.whole or (rows.before, rows.labels)
            self._remembered.setdefault(site, []).append((before_ND.detach(), labels_N))

    @torch.no_grad()
    def observe(self) -> None:
        """Feed each isotropy layer what was remembered since the last call, all at once."""
        for site, kept in self._remembered.items():
            before_ND, labels_N = (torch.cat(parts) for parts in zip(*kept, strict=True))
            layer: Any = self.transforms[site]
            layer.observe(before_ND, *([labels_N] if layer.reads_labels else []))
        self._remembered.clear()

    def _at_tokens(
        self,
        site: str,
        batch: Batch,
        mask_AT: Tensor,
        site_embeddings: dict[str, SiteEmbeddings],
        hidden_ATD: Tensor,
    ) -> Tensor:
        """Token states with the layer of `site` applied where `mask` is true."""
        n_tokens = mask_AT.shape[1]
        label_A = batch.labels.repeat(batch.n_sequences)
        rows = self._at_site(
            site,
            take_rows(hidden_ATD, mask_AT),
            row_ids(batch.index, batch.n_sequences, n_tokens)[mask_AT],
            label_A[:, None].expand_as(mask_AT)[mask_AT],
            lambda: order_keys(len(batch.index), batch.n_sequences, n_tokens)[mask_AT.cpu()],
        )
        site_embeddings[site] = rows
        if rows.after is rows.before:
            return hidden_ATD
        return put_rows(hidden_ATD, mask_AT, rows.after)

    def _at_pooled(
        self, batch: Batch, site_embeddings: dict[str, SiteEmbeddings], pooled_BPD: Tensor
    ) -> Tensor:
        """Pooled vectors with the layer of `pooled` applied."""
        n, n_vectors = pooled_BPD.shape[:2]
        site_embeddings["pooled"] = self._at_site(
            "pooled",
            pooled_BPD.flatten(0, 1),
            row_ids(batch.index, 1, n_vectors).flatten(),
            batch.labels.repeat_interleave(n_vectors),
            lambda: order_keys(n, 1, n_vectors).flatten(),
        )
        return site_embeddings["pooled"].after.reshape(n, n_vectors, -1)

    def _at_site(
        self,
        site: str,
        before_ND: Tensor,
        ids_N: Tensor,
        labels_N: Tensor,
        places: Callable[[], Tensor],
    ) -> SiteEmbeddings:
        """Layer input and output; in training, statistics may come from all processes.

        `places` gives the keys of the rows in the whole batch (see `order_keys`).
        """
        layer = self.transforms[site]
        takes_labels = layer.training and layer.reads_labels
        if n_processes() == 1 or not (self.training and layer.changes_rows):
            after_ND = layer(before_ND, *([labels_N] if takes_labels else []))
            return SiteEmbeddings(before_ND, after_ND, ids_N, labels_N)
        whole = WholeBatch(places().to(ids_N.device))
        with nullcontext() if self.sync else torch.no_grad():  # else it is for the queue alone
            all_ND = whole.gather(before_ND)
            all_N = whole.gather(labels_N) if layer.reads_labels else labels_N
        if self.sync:
            after_ND = layer(all_ND, *([all_N] if takes_labels else []))[whole.own_N]
        else:
            after_ND = layer(before_ND, *([labels_N] if takes_labels else []))
        return SiteEmbeddings(before_ND, after_ND, ids_N, labels_N, (all_ND, all_N))
