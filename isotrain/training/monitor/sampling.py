"""A fixed sample of the embeddings of an evaluation, or of a training step.

A = Q·B sequences, T tokens, D width, N embeddings offered, M kept.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.rows import hash_ids, locate_ids, row_ids
from isotrain.model.distributed import all_gather
from isotrain.model.pooling import last_pool, mean_pool
from isotrain.runs.keys import SIDES, layer_name
from isotrain.types import Batch, ModelOutput


@dataclass(frozen=True)
class SampledCloud:
    """One cloud, with ids, labels and tokens of its embeddings."""

    where: str  # layer_03, or a site
    view: str  # cls, tokens, mean, last; before, after
    x_ND: Tensor
    id_N: Tensor  # see row_ids
    label_N: Tensor  # class or score of each embedding's example
    token_N: Tensor | None  # token ids; None if embeddings are not of single tokens
    is_owned: bool = False  # whether each embedding represents a whole example

    @property
    def name(self) -> str:
        """`<where>/<view>`, as in keys."""
        return f"{self.where}/{self.view}"

    @cached_property
    def finite_N(self) -> Tensor:
        """Mask of the finite embeddings."""
        return torch.isfinite(self.x_ND).all(dim=1)

    @cached_property
    def finite(self) -> Cloud:
        """The finite embeddings as a cloud, whose moments and spectra are cached."""
        return Cloud(self.x_ND if self.finite_N.all() else self.x_ND[self.finite_N], min_rows=1)


class CloudSampler:
    """Sample up to `max_rows` embeddings of each layer and view, and of each site.

    Those with the lowest id hashes are kept: the same ones for any batch size, evaluation and
    number of processes. `views` are those of a layer: the first token (cls), every non-pad token
    (tokens), their mean in each sequence, the last token. `bare` sites have no isotropy layer and
    one cloud.
    """

    def __init__(self, max_rows: int, views: Collection[str], bare: Collection[str] = ()) -> None:
        self.max_rows, self.bare = max_rows, frozenset(bare)
        self._views = {view: Reservoir(max_rows) for view in views}
        self._sites: dict[str, Reservoir] = {}
        self._owned: set[str] = set()
        self.frequency_V = torch.zeros(0, dtype=torch.long)  # of each offered token id

    def offer(self, batch: Batch, output: ModelOutput) -> None:
        """Sample from a batch; only selected embeddings are copied."""
        states, mask_AT, token_AT = output.hidden_states, batch.attention_mask, batch.input_ids
        count_V = torch.bincount(token_AT[mask_AT.bool()].cpu())
        self.frequency_V = _sum([self.frequency_V, count_V])
        id_AT = row_ids(batch.index, batch.n_sequences, token_AT.shape[1])
        label_A = batch.labels.repeat(batch.n_sequences)
        for view, reservoir in self._views.items():
            if view == "cls":
                reservoir.add(id_AT[:, 0], [hidden[:, 0] for hidden in states], [label_A])
            elif view in ("mean", "last"):
                pool = mean_pool if view == "mean" else last_pool
                vectors = [pool(hidden, mask_AT) for hidden in states]
                reservoir.add(id_AT[:, 0], vectors, [label_A])
            else:
                position_N = mask_AT.flatten().nonzero().flatten()
                label_AT = label_A[:, None].expand_as(id_AT)
                clouds = [hidden.flatten(0, 1) for hidden in states]
                facts = [label_AT.flatten(), token_AT.flatten()]
                reservoir.add(id_AT.flatten()[position_N], clouds, facts, position_N)
        for site, rows in output.site_embeddings.items():
            if len(rows.ids) == len(batch.labels):
                self._owned.add(site)
            facts = [rows.labels]
            if site != "pooled":
                facts.append(token_AT[locate_ids(rows.ids, batch.index)])
            clouds = [rows.after] if site in self.bare else [rows.before, rows.after]
            self._sites.setdefault(site, Reservoir(self.max_rows)).add(rows.ids, clouds, facts)

    def exchange(self) -> None:
        """Merge over processes: each then has the single-process sample."""
        for reservoir in (*self._views.values(), *self._sites.values()):
            reservoir.exchange()
        lengths = all_gather(torch.tensor([len(self.frequency_V)])).tolist()
        self.frequency_V = _sum(all_gather(self.frequency_V).split(lengths))

    def clouds(self) -> Iterator[SampledCloud]:
        """Yield each cloud, with its embeddings sorted by hash."""
        for view, reservoir in self._views.items():
            names = [(layer_name(number), view) for number in range(reservoir.n_clouds)]
            yield from _clouds(reservoir, names, is_owned=False)
        for site, reservoir in self._sites.items():
            names = [(site, side) for side in SIDES[-reservoir.n_clouds :]]
            yield from _clouds(reservoir, names, site in self._owned)


class Reservoir:
    """The `budget` embeddings with the lowest id hashes, for G clouds that share their ids.

    The same ones for any order and batch size. Facts of an embedding, such as its label, keep
    their dtype. Memory is G·M·D·4 bytes plus ids and facts, independent of the data size.

    >>> r = Reservoir(2)
    >>> r.add(torch.arange(4), [torch.arange(4.0)[:, None]], [torch.arange(4)])
    >>> len(r), bool((r.cloud(0)[:, 0] == r.ids).all()), bool((r.fact(0) == r.ids).all())
    (2, True, True)
    """

    def __init__(self, budget: int) -> None:
        self.budget, self.n_facts, self.n_clouds = budget, 0, 0
        empty = torch.empty(0, dtype=torch.int64)
        self._columns = [empty, empty]  # hashes, ids, facts, clouds

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(
        self,
        ids_N: Tensor,
        clouds: Sequence[Tensor],
        facts: Sequence[Tensor] = (),
        at_N: Tensor | None = None,
    ) -> None:
        """Offer embeddings; selected ones are copied to CPU memory as float32.

        `at` gives the position of each id in clouds and facts; None = in the order of the ids.
        """
        columns = [*facts, *clouds]
        if not self.n_clouds:  # even without embeddings: another process may have some
            self.n_facts, self.n_clouds = len(facts), len(clouds)
            empty = [*(x[:0] for x in facts), *(x[:0].float() for x in clouds)]
            self._columns += [x.detach().cpu() for x in empty]
        hashes_N = hash_ids(ids_N)
        candidates = torch.arange(len(ids_N), device=ids_N.device)
        if len(self) == self.budget:  # most embeddings of a long evaluation are skipped here
            candidates = candidates[hashes_N < self._columns[0].max().to(hashes_N.device)]
        if len(candidates) > self.budget:
            candidates = candidates[hashes_N[candidates].argsort()[: self.budget]]
        if len(candidates) == 0:
            return
        n_old = len(self)
        n_free = min(self.budget - n_old, len(candidates))
        lowest = torch.cat([self._columns[0], hashes_N[candidates].cpu()]).argsort()[: self.budget]
        is_free = torch.ones(n_old + n_free, dtype=torch.bool)
        is_free[lowest[lowest < n_old]] = False
        candidates = candidates[(lowest[lowest >= n_old] - n_old).to(candidates.device)]
        rows = candidates if at_N is None else at_N[candidates]
        new = [hashes_N[candidates], ids_N[candidates], *(x.detach()[rows] for x in columns)]
        for number, (old, added) in enumerate(zip(self._columns, new, strict=True)):
            column = torch.cat([old, old.new_zeros(n_free, *old.shape[1:])]) if n_free else old
            column[is_free] = added.to(old.dtype).cpu()
            self._columns[number] = column

    def exchange(self) -> None:
        """Keep the lowest hashes over all processes; all then have the same sample."""
        lowest = all_gather(self._columns[0]).argsort()[: self.budget]
        self._columns = [all_gather(column)[lowest] for column in self._columns]

    @property
    def ids(self) -> Tensor:
        """The kept ids, sorted by hash."""
        return self._sorted(1)

    def fact(self, number: int) -> Tensor:
        """One fact of the kept embeddings, sorted by hash."""
        return self._sorted(2 + number)

    def cloud(self, number: int) -> Tensor:
        """The kept embeddings of one cloud (a copy), sorted by hash."""
        return self._sorted(2 + self.n_facts + number)

    def _sorted(self, number: int) -> Tensor:
        return self._columns[number][self._columns[0].argsort()]


def _clouds(
    reservoir: Reservoir, names: Sequence[tuple[str, str]], is_owned: bool
) -> Iterator[SampledCloud]:
    for number, (where, view) in enumerate(names):
        label_N, token_N = reservoir.fact(0), reservoir.fact(1) if reservoir.n_facts > 1 else None
        x_ND = reservoir.cloud(number)
        yield SampledCloud(where, view, x_ND, reservoir.ids, label_N, token_N, is_owned)


def _sum(counts: Sequence[Tensor]) -> Tensor:
    """Sum of token id counts of different lengths (each up to its largest id)."""
    n = max(len(count) for count in counts)
    return torch.stack([pad(count, (0, n - len(count))) for count in counts]).sum(dim=0)
