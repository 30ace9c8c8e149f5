"""The objectives of a run: what they read, their weighted sum, what they remember.

A = Q·B sequences, T tokens, D hidden, P vectors per example, N rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from isotrain.arguments import check_kind
from isotrain.config.read_points import read_point
from isotrain.encoders.base import Encoder
from isotrain.geometry.rows import take_rows, wide
from isotrain.model.distributed import (
    WholeBatch,
    n_processes,
    order_keys,
    sum_over_processes,
)
from isotrain.model.pooling import cls_pool, mean_pool
from isotrain.objectives.base import Objective
from isotrain.types import Batch, ModelOutput

Passes = Callable[[int | None], Iterable[tuple[Batch, ModelOutput]]]
"""The model on the first n training batches in evaluation mode; None = on all of them."""

Gather = Callable[[str, Tensor], Tensor]
"""From the embeddings of this process at a read point to those of all."""

NEEDS: dict[str, tuple[float, float, str, str]] = {  # vectors of an example, and the way out
    "classes": (1, 1, "one vector of an example, which owns its class", "task.form=cross"),
    "pairs": (2, math.inf, "two vectors of an example", "task.form=bi, or task=nli_pairs"),
    "two_vectors": (
        *(2, 2, "exactly two vectors of an example"),
        "task.form=bi or task=nli_pairs without hard negatives, or positives=dropout",
    ),
    "scored_pairs": (
        *(2, 2, "exactly two vectors of an example"),
        "task.form=bi with pooling=cls or mean",
    ),
}


class ExtraLosses(nn.Module):
    """The weighted sum of objectives, each on what it reads.

    Those with parameters or buffers are parts of this module, so that they move, train and are
    saved with it.

    Args:
        objectives: by the name under which each is logged.

    Raises:
        ValueError: one that does not inherit from `Objective`.
    """

    def __init__(self, objectives: Mapping[str, Objective]) -> None:
        super().__init__()
        for name, objective in objectives.items():
            check_kind(name, objective, Objective)
        self.objectives = dict(objectives)
        self.parts = nn.ModuleDict(self.objectives)
        # what objectives have read since the last optimizer step
        self._pending: list[dict[str, tuple[list[list[Tensor]], Tensor]]] = []

    @property
    def n_views(self) -> int:
        """Forward passes of a batch that a step needs."""
        return max([1, *(objective.n_views for objective in self.objectives.values())])

    def forward(
        self, views: Sequence[ModelOutput], batch: Batch
    ) -> tuple[Tensor | float, dict[str, Tensor]]:
        """The weighted sum, and each loss and counter under the key it is logged by.

        In float32 at least, whatever the precision of the encoder.
        """
        total: Tensor | float = 0.0
        logged: dict[str, Tensor] = {}
        if not self.objectives:
            return total, logged
        step = StepGather(batch) if n_processes() > 1 else None
        labels_B = step.labels_B if step else batch.labels
        remembered = {}
        with torch.autocast(batch.labels.device.type, enabled=False):
            for name, objective in self.objectives.items():
                read = [
                    read_points(view, batch, objective.reads, partial(step, v) if step else None)
                    for v, view in enumerate(views[: objective.n_views])
                ]
                loss = objective(read, labels_B)
                logged[f"train/{name}"] = loss.detach()
                for counter, value in objective.counters.items():
                    logged[f"train/{name}/{counter}"] = value.detach().to(loss.device)
                total = total + objective.weight * loss
                kept = read if objective.remembers else []
                remembered[name] = [[x.detach() for x in clouds] for clouds in kept], labels_B
        self._pending.append(remembered)
        return total, logged

    @torch.no_grad()
    def observe(self) -> None:
        """Once per optimizer step: objectives remember the rows of all its micro-batches."""
        for name in self._pending[0] if self._pending else ():
            several, labels = zip(*(step[name] for step in self._pending), strict=True)
            views = [
                [torch.cat(clouds) for clouds in zip(*view, strict=True)]
                for view in zip(*several, strict=True)
            ]
            self.objectives[name].observe(views, torch.cat(labels))
        self._pending.clear()

    @torch.no_grad()
    def prepare(self, epoch: int, passes: Passes) -> None:
        """At the start of an epoch: show training rows to the objectives that ask for a pass."""
        for objective in self.objectives.values():
            if objective.asks_for_pass(epoch):
                reads = objective.reads
                objective.prepare(
                    epoch, (read_points(output, batch, reads) for batch, output in passes(None))
                )


def check_reads(
    objectives: Mapping[str, Objective],
    encoder: Encoder,
    n_vectors: int,
    n_sequences: int,
    sites: Collection[str],
) -> None:
    """Refuse objectives whose read points do not hold what they need.

    A block gives one vector of each of the `n_sequences` of an example, and pooling `n_vectors`;
    `sites` are those of the isotropy layers.

    Raises:
        ValueError: a block that the encoder does not have; the input of a layer at pooled where
            there is none; a first token that says nothing of its sentence; tokens where vectors
            are needed, or too few or too many vectors an example; what the objective's own
            `check` refuses. The objective is named.
    """
    for name, objective in objectives.items():
        needs = objective.needs
        least, most, what, fix = NEEDS.get(needs, (0, math.inf, "", ""))
        for text in objective.reads:
            found = read_point(text)
            n = n_vectors if found.view is None else n_sequences
            try:
                found.blocks(encoder.n_blocks)
                if found.view != "tokens":
                    objective.check(n)
            except ValueError as error:
                raise ValueError(f"objective={name}: {error}") from error
            if found.name == "before" and "pooled" not in sites:
                raise ValueError(
                    f"objective={name} reads {text}, the input of the isotropy layer at pooled, "
                    f"and site={list(sites)} has none there; add pooled to site, or read pooled"
                )
            if found.view == "cls" and (found.name == "layer_0" or encoder.is_causal):
                raise ValueError(
                    f"objective={name} reads {text}, the first token before it has seen anything "
                    f"of its sentence; read {found.name}/mean"
                )
            if needs != "rows" and found.view == "tokens":
                raise ValueError(
                    f"objective={name} compares examples, and {text} gives it tokens; read "
                    "pooled, or a block's /cls or /mean"
                )
            if found.view != "tokens" and not least <= n <= most:
                by = "task and pooling give" if found.view is None else "task gives"
                raise ValueError(
                    f"objective={name} needs {what}, and at {text} this {by} {n}; use {fix}"
                )


def read_points(
    output: ModelOutput, batch: Batch, reads: Sequence[str], gather: Gather | None = None
) -> list[Tensor]:
    """What a forward pass has at each read point, in float32 at least.

    `[B, P, D]` for pooled, before, cls and mean (P vectors of an example), `[N, D]` for tokens
    (pads left out); `all/…` gives one for each block.

    Args:
        output: of the forward pass, and
        batch: what it was given.
        reads: names of read points.
        gather: embeddings at a read point to those of all processes; None = they stay this one's.

    Raises:
        ValueError: a block that the encoder does not have.
    """
    found: list[tuple[str, Tensor]] = []
    for name, view in map(read_point, reads):
        if view is None:
            x = output.site_embeddings["pooled"].before if name == "before" else output.pooled
            found.append((name, x.reshape(*output.pooled.shape[:2], -1)))
            continue
        for block in read_point(f"{name}/{view}").blocks(len(output.hidden_states) - 1):
            hidden_ATD = output.hidden_states[block]
            found.append((f"layer_{block}/{view}", _of_block(hidden_ATD, batch, view)))
    return [wide(gather(key, x) if gather else x) for key, x in found]


def _of_block(hidden_ATD: Tensor, batch: Batch, view: str) -> Tensor:
    """The tokens `[N, D]` of a block, or a vector of each sequence, `[B, Q, D]`."""
    if view == "tokens":
        return take_rows(hidden_ATD, batch.attention_mask.bool())
    vectors_AD = (
        cls_pool(hidden_ATD) if view == "cls" else mean_pool(wide(hidden_ATD), batch.attention_mask)
    )
    vectors_QBD = vectors_AD.reshape(batch.n_sequences, len(batch.labels), -1)
    return vectors_QBD.transpose(0, 1)


class StepGather:
    """All-gather for the objectives of one step: each read point of a view once, and labels.

    Objectives share what was gathered and keep their own gradients, which are summed over the
    processes one by one: sums over objectives are then made in the order of one process.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.examples = self._whole(order_keys(len(batch.labels), 1, 1).flatten())
        self.labels_B = self.examples.gather(batch.labels)
        self._gathered: dict[tuple[int, str], Tensor] = {}

    @cached_property
    def tokens(self) -> WholeBatch:
        """The order of the tokens of all processes."""
        mask_AT = self.batch.attention_mask.bool().cpu()
        shape = len(self.batch.labels), self.batch.n_sequences, mask_AT.shape[1]
        return self._whole(order_keys(*shape)[mask_AT])

    def __call__(self, view: int, key: str, x: Tensor) -> Tensor:
        """What all processes have at read point `key` of a view, as one process would hold it."""
        whole = self.tokens if key.endswith("/tokens") else self.examples
        if (view, key) not in self._gathered:
            self._gathered[view, key] = whole.gather(x.detach())
        return _Shared.apply(x, self._gathered[view, key], whole.own_N)  # type: ignore[no-any-return]

    def _whole(self, places_N: Tensor) -> WholeBatch:
        return WholeBatch(places_N.to(self.batch.labels.device))


class _Shared(torch.autograd.Function):
    """Embeddings that were gathered already; their gradient is summed over processes."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, all_ND: Tensor, own_N: Tensor) -> Tensor:
        ctx.own_N = own_N
        return all_ND.view_as(all_ND)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return sum_over_processes(grads[0].contiguous())[ctx.own_N], None, None
