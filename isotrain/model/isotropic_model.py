"""The model: encoder, isotropy layers at their sites, pooling, head. No Lightning, no config.

A = Q·B sequences, T tokens, D hidden, P vectors per example, N embeddings.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from isotrain.encoders.base import Encoder
from isotrain.geometry.rows import put_rows, row_ids, take_rows
from isotrain.model.distributed import (
    WholeBatch,
    n_processes,
    order_keys,
    with_whole_gradient,
)
from isotrain.transforms.base import RowTransform
from isotrain.types import Batch, Edit, EncoderOutput, ModelOutput, Pooling, SiteEmbeddings

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


def depth_of_site(site: str, n_blocks: int) -> int:
    """The depth of an isotropy layer: k after block k, then tokens, pooled."""
    return (block_of(site, n_blocks) or n_blocks) + 1 + (site == "pooled")


class StepMemory:
    """Tensors of the micro-batches of an optimizer step, joined after the step."""

    def __init__(self) -> None:
        self.tensors: dict[str, list[list[Tensor]]] = {}

    def keep(self, name: str, tensors: Sequence[Tensor]) -> None:
        """Store tensors of a micro-batch under a name; the same number every time."""
        self.tensors.setdefault(name, []).append([x.detach() for x in tensors])

    def take(self) -> dict[str, list[Tensor]]:
        """The tensors kept since the last call, each over all micro-batches."""
        micro_batches, self.tensors = self.tensors, {}
        return {
            name: batches[0] if len(batches) == 1 else [*map(torch.cat, zip(*batches, strict=True))]
            for name, batches in micro_batches.items()
        }


class IsotropicModel(nn.Module):
    """Encoder → (layer_k, tokens: isotropy layer) → pooling → (pooled: isotropy layer) → head.

    Args:
        encoder: returns all L+1 hidden states.
        pooling: token states to `[B, P, D]`.
        head: `[B, P, D]` to logits.
        transforms: one isotropy layer per site: pooled, tokens or layer_k (output of block k).
        rows: at token sites, every non-pad token (`all`) or without CLS and SEP (`no_special`).

    With several processes, a layer in training gets the embeddings of all, in single-process order.
    """

    def __init__(
        self,
        encoder: Encoder,
        pooling: Pooling,
        head: nn.Module,
        transforms: Mapping[str, RowTransform],
        rows: TokenRows = "all",
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
        self.rows = rows
        self.recent = StepMemory()
        # In place of the encoder in training, where shorter.
        self.fast: Callable[[Batch, Mapping[int, Edit]], EncoderOutput] | None = None

    def forward(self, batch: Batch) -> ModelOutput:
        """All hidden states, the embeddings around every site, pooled embeddings and logits."""
        mask_AT = batch.attention_mask.bool()
        if self.rows == "no_special":
            mask_AT = mask_AT & ~batch.special_mask.bool()
        site_embeddings: dict[str, SiteEmbeddings] = {}  # filled by the sites, in their order
        edits: dict[int, Edit] = {
            block: partial(self._at_site, site, batch, mask_AT, site_embeddings)
            for site, block in self.blocks_of.items()
            if block is not None
        }
        encode = self.fast if self.fast is not None and self.training else self.encoder
        states = encode(batch, edits)
        last_ATD = states.last
        if "tokens" in self.transforms:
            last_ATD = self._at_site("tokens", batch, mask_AT, site_embeddings, last_ATD)
        pooled_BPD = self.pooling(last_ATD, batch)
        if "pooled" in self.transforms:
            pooled_BPD = self._at_site("pooled", batch, None, site_embeddings, pooled_BPD)
        return ModelOutput(states.hidden_states, pooled_BPD, self.head(pooled_BPD), site_embeddings)

    def _at_site(
        self,
        site: str,
        batch: Batch,
        mask_AT: Tensor | None,
        site_embeddings: dict[str, SiteEmbeddings],
        x_ATD: Tensor,
    ) -> Tensor:
        """Apply the layer of `site` where `mask` is true (None = everywhere), and record it.

        In training, statistics may come from all processes.
        """

        def select(x_AT: Tensor) -> Tensor:
            return x_AT.flatten() if mask_AT is None else x_AT[mask_AT]

        n_sequences, n_positions = len(x_ATD) // len(batch.labels), x_ATD.shape[1]
        before_ND = x_ATD.flatten(0, 1) if mask_AT is None else take_rows(x_ATD, mask_AT)
        ids_N = select(row_ids(batch.index, n_sequences, n_positions))
        labels_N = select(batch.labels.repeat(n_sequences)[:, None].expand(x_ATD.shape[:2]))
        layer = self.transforms[site]
        takes_labels = layer.training and layer.reads_labels
        whole = None
        acts = layer.changes_rows or layer.changes_gradient
        if n_processes() > 1 and self.training and acts:
            keys_AT = order_keys(len(batch.labels), n_sequences, n_positions)
            order = WholeBatch(select(keys_AT.to(ids_N.device)))
            all_labels_N = order.gather(labels_N) if layer.reads_labels else labels_N
            before_all_ND = order.gather(before_ND, sums_gradient=not layer.changes_gradient)
            whole = before_all_ND, all_labels_N
            all_after_ND = layer(*whole) if takes_labels else layer(before_all_ND)
            if layer.changes_gradient:
                all_after_ND = with_whole_gradient(all_after_ND)
            after_ND: Tensor = all_after_ND[order.local_N]
        else:
            after_ND = layer(before_ND, labels_N) if takes_labels else layer(before_ND)
        site_embeddings[site] = SiteEmbeddings(before_ND, after_ND, ids_N, labels_N, whole)
        if after_ND is before_ND:
            return x_ATD
        if mask_AT is None:  # its width may differ
            return after_ND.reshape(*x_ATD.shape[:2], -1)
        return put_rows(x_ATD, mask_AT, after_ND)

    def remember(self, output: ModelOutput) -> None:
        """Store the layer inputs of a micro-batch, of all processes, until `observe`."""
        for site, embeddings in output.site_embeddings.items():
            layer = self.transforms[site]
            if not layer.remembers:
                continue
            before_ND, labels_N = embeddings.whole or (embeddings.before, embeddings.labels)
            before_ND = before_ND.detach()
            tensors = (before_ND, labels_N) if layer.reads_labels else (before_ND,)
            self.recent.keep(site, tensors)

    @torch.no_grad()
    def observe(self) -> None:
        """Pass each isotropy layer the inputs stored since the last call, all at once."""
        for site, inputs in self.recent.take().items():
            self.transforms[site].observe(*inputs)  # type: ignore[operator]
