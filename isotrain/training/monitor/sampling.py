"""The rows of an evaluation, or of a training step, that the monitor measures.

A = Q·B sequences, T tokens, L blocks, D hidden, N rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.rows import places_of, row_ids
from isotrain.model.distributed import all_gather
from isotrain.model.pooling import mean_pool
from isotrain.runs.keys import SIDES, layer_name
from isotrain.training.monitor.reservoir import Reservoir
from isotrain.types import Batch, ModelOutput, SiteEmbeddings

NO_TOKEN = -1  # of a row that is not one token


class Watched(NamedTuple):
    """One cloud, and what is known of its rows."""

    where: str  # layer_03, or a site
    view: str  # cls, tokens, mean; before, after
    x_ND: Tensor
    id_N: Tensor  # see row_ids
    label_N: Tensor  # class, or score, of the example that each row comes from
    token_N: Tensor | None  # token ids; None where a row is no word
    is_owned: bool  # whether each row is an example of its own

    @property
    def name(self) -> str:
        """`<where>/<view>`, as in keys."""
        return f"{self.where}/{self.view}"


class WatchedRows:
    """Keeps at most `max_rows` rows of each layer and view, and of each site.

    They are those whose ids hash lowest: the same ones for any batch size, at every evaluation,
    and for one process or several. Memory is `max_rows`·D·4 bytes for each cloud, whatever the
    size of the data.

    Args:
        max_rows: row budget of each cloud.
        views: of each layer: cls, tokens, mean.
        bare: sites without an isotropy layer; before and after it is one cloud there.
    """

    def __init__(self, max_rows: int, views: Collection[str], bare: Collection[str] = ()) -> None:
        self.max_rows, self.views, self.bare = max_rows, tuple(views), frozenset(bare)
        self._kept: dict[str, Reservoir] = {}
        self._is_owned: dict[str, bool] = {}
        self._are_scores = False
        self.frequency_V = torch.zeros(0, dtype=torch.long)  # of each token id that was offered

    def offer(self, batch: Batch, output: ModelOutput) -> None:
        """Look at a batch; only rows that stay are copied."""
        states, mask_AT = output.hidden_states, batch.attention_mask
        token_N = batch.input_ids[mask_AT.bool()].cpu()
        self.frequency_V = _sum([self.frequency_V, torch.bincount(token_N)])
        id_AT = row_ids(batch.index, batch.n_sequences, batch.input_ids.shape[1])
        label_A = batch.labels.repeat(batch.n_sequences)
        self._are_scores = batch.labels.is_floating_point()
        first_A = torch.arange(len(id_AT), device=id_AT.device) * id_AT.shape[1]
        known_RF = _known(label_A[:, None].expand_as(id_AT), batch.input_ids)
        for view in self.views:
            if view == "mean":
                means = [mean_pool(hidden, mask_AT) for hidden in states]
                nameless = torch.full_like(id_AT[:, 0], NO_TOKEN)
                self._of(view).add(id_AT[:, 0], [*means, _known(label_A, nameless)])
                continue
            place_N = first_A if view == "cls" else mask_AT.flatten().nonzero().flatten()
            clouds = [*(hidden.flatten(0, 1) for hidden in states), known_RF]
            self._of(view).add(id_AT.flatten()[place_N], clouds, place_N)
        for site, rows in output.site_embeddings.items():
            self._is_owned[site] = len(rows.ids) == len(batch.labels)
            clouds = [rows.after] if site in self.bare else [rows.before, rows.after]
            token_N = _tokens(site, rows, batch)
            self._of(f"{site}_site").add(rows.ids, [*clouds, _known(rows.labels, token_N)])

    def exchange(self) -> None:
        """Keep, in every process, the rows that one process would keep."""
        for reservoir in self._kept.values():
            reservoir.exchange()
        counts, _ = all_gather(self.frequency_V)
        lengths, _ = all_gather(torch.tensor([len(self.frequency_V)]))
        self.frequency_V = _sum(counts.split(lengths.tolist()))

    def clouds(self) -> Iterator[Watched]:
        """One cloud after the other, with its rows in the order of their hashes."""
        for name, reservoir in self._kept.items():
            n_clouds = reservoir.n_clouds - 1
            known_NF, id_N = reservoir.cloud(n_clouds), reservoir.ids
            label_N, token_N = known_NF[:, 0], known_NF[:, 1].long()
            site = name.removesuffix("_site")
            is_nameless = name == "cls" or bool((token_N == NO_TOKEN).any())
            sides = SIDES[-1:] if site in self.bare else SIDES
            for number in range(n_clouds):
                of_layer = name in self.views
                yield Watched(
                    layer_name(number) if of_layer else site,
                    name if of_layer else sides[number],
                    reservoir.cloud(number),
                    id_N,
                    label_N if self._are_scores else label_N.long(),
                    None if is_nameless else token_N,
                    self._is_owned.get(site, False),
                )

    @property
    def n_bytes(self) -> int:
        """Memory that the kept rows take."""
        return sum(reservoir.n_bytes for reservoir in self._kept.values())

    def _of(self, name: str) -> Reservoir:
        if name not in self._kept:
            self._kept[name] = Reservoir(self.max_rows)
        return self._kept[name]


def _sum(counts: Sequence[Tensor]) -> Tensor:
    """The sum of counts of token ids, each up to the largest id that it has seen."""
    n = max(len(count) for count in counts)
    return torch.stack([torch.nn.functional.pad(c, (0, n - len(c))) for c in counts]).sum(dim=0)


def _known(label: Tensor, token: Tensor) -> Tensor:
    """Label and token id as one more cloud `[N, 2]`; float32 holds ids below 2^24 exactly."""
    return torch.stack([label.flatten().float(), token.flatten().float()], dim=1)


def _tokens(site: str, rows: SiteEmbeddings, batch: Batch) -> Tensor:
    """The token id of each row of a site; none behind the pooling."""
    if site == "pooled":
        return torch.full_like(rows.ids, NO_TOKEN)
    sequence_N, position_N = places_of(rows.ids, batch.index)
    return batch.input_ids[sequence_N, position_N]
