"""A fixed budget of rows, chosen by hash: the same rows for any order or batch size.

M budget, G clouds kept for the same ids (one per layer), N rows, D hidden.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from isotrain.geometry.rows import hash_ids
from isotrain.model.distributed import all_gather


class Reservoir:
    """The `budget` rows whose ids hash lowest, for G clouds that share their ids.

    Memory is G · M · D · 4 bytes once M ids were seen, whatever the size of the data.

    >>> r = Reservoir(2)
    >>> r.add(torch.arange(4), [torch.arange(4.0)[:, None]])
    >>> len(r), r.n_seen
    (2, 4)
    >>> bool((r.cloud(0)[:, 0] == r.ids).all())
    True
    """

    def __init__(self, budget: int) -> None:
        if budget < 2:
            raise ValueError(f"a reservoir keeps at least 2 rows, got budget={budget}")
        self.budget = budget
        self.n_seen = 0
        self._ids = self._hashes = torch.empty(0, dtype=torch.int64)
        self._clouds: list[Tensor] = []

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, ids_N: Tensor, clouds: Sequence[Tensor], places_N: Tensor | None = None) -> None:
        """Offer rows; only those that stay are read, and copied to CPU memory as float32.

        Row `places[i]` of each cloud has the id `ids[i]`; by default `places` counts up.
        """
        if self._clouds and len(clouds) != len(self._clouds):
            raise ValueError(f"this reservoir keeps {len(self._clouds)} clouds, got {len(clouds)}")
        places = len(ids_N) if places_N is None else len(clouds[0])
        if any(len(cloud) != places for cloud in clouds):
            raise ValueError("every cloud needs one row per id, and all clouds equally many rows")
        self.n_seen += len(ids_N)
        hashes_N = hash_ids(ids_N)
        if len(self) == self.budget:  # most rows of a long evaluation end here, uncopied
            chosen = (hashes_N < self._hashes.max().to(hashes_N.device)).nonzero().flatten()
        else:
            chosen = torch.arange(len(ids_N), device=ids_N.device)
        if len(chosen) > self.budget:
            chosen = chosen[hashes_N[chosen].argsort()[: self.budget]]
        if not self._clouds:  # also where no row comes: another process may have some
            self._clouds = [cloud.detach()[:0].float().cpu() for cloud in clouds]
        if len(chosen) == 0:
            return
        new_hashes, new_ids = hashes_N[chosen].cpu(), ids_N[chosen].cpu()
        n_old, n_new = len(self), len(new_hashes)
        n_free = min(self.budget - n_old, n_new)
        kept = torch.cat([self._hashes, new_hashes]).argsort()[: self.budget]
        coming = kept[kept >= n_old] - n_old
        leaving = torch.ones(n_old, dtype=torch.bool)
        leaving[kept[kept < n_old]] = False
        slots = torch.cat([leaving.nonzero().flatten(), torch.arange(n_old, n_old + n_free)])
        slots = slots[: len(coming)]
        self._hashes = _grown(self._hashes, n_old + n_free)
        self._ids = _grown(self._ids, n_old + n_free)
        self._hashes[slots], self._ids[slots] = new_hashes[coming], new_ids[coming]
        chosen = chosen[coming.to(chosen.device)]
        if places_N is not None:
            chosen = places_N[chosen]
        for g, cloud in enumerate(clouds):
            rows = cloud.detach()[chosen].float().cpu()
            self._clouds[g] = _grown(self._clouds[g], n_old + n_free)
            self._clouds[g][slots] = rows

    def exchange(self) -> None:
        """Keep the rows that hash lowest over all processes; afterwards each holds the same."""
        kept = all_gather(self._hashes)[0].argsort()[: self.budget]
        self._clouds = [all_gather(cloud)[0][kept] for cloud in self._clouds]
        self._ids = all_gather(self._ids)[0][kept]
        self._hashes = all_gather(self._hashes)[0][kept]

    @property
    def ids(self) -> Tensor:
        """The ids of the kept rows, in the order of their hashes."""
        return self._ids[self._hashes.argsort()]

    @property
    def n_clouds(self) -> int:
        """G, once rows were added."""
        return len(self._clouds)

    @property
    def n_bytes(self) -> int:
        """Memory that the kept rows and their names take."""
        kept = [self._ids, self._hashes, *self._clouds]
        return sum(x.untyped_storage().nbytes() for x in kept)

    def cloud(self, number: int) -> Tensor:
        """The kept rows of one cloud (a copy), in the order of their hashes."""
        return self._clouds[number][self._hashes.argsort()]

    def clouds(self) -> list[Tensor]:
        """The kept rows of every cloud."""
        return [self.cloud(number) for number in range(self.n_clouds)]


def _grown(x: Tensor, n: int) -> Tensor:
    if len(x) == n:
        return x
    return torch.cat([x, x.new_zeros(n - len(x), *x.shape[1:])])
