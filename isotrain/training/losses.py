"""The objectives of a run: their read points, weighted sum, weights and queues.

A = Q·B sequences, T tokens, D hidden, P vectors per example, N embeddings, O objectives, L blocks.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from isotrain.config.read_points import ReadPoint
from isotrain.config.schema import WeightAs, WeightSchedule
from isotrain.geometry.rows import take_rows, wide
from isotrain.model.distributed import (
    WholeBatch,
    n_processes,
    order_keys,
    sum_over_processes,
)
from isotrain.model.isotropic_model import StepMemory
from isotrain.model.pooling import cls_pool, last_pool, mean_pool
from isotrain.objectives.base import Objective
from isotrain.training.layer_statistics import Passes
from isotrain.types import Batch, ModelOutput

Gather = Callable[[str, Tensor], Tensor]
"""From the embeddings of this process at a read point to those of all."""

START = -1  # view index of the frozen start, among gathered views

NEEDS: dict[str, tuple[float, float, str, str]] = {  # vectors per example, and the fix
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
MOMENTUM = 0.9  # of the running means of gradient norms, per optimizer step


class ObjectiveWeights(nn.Module):
    """Factor of each objective's loss: its `weight`, scheduled and scaled.

    With `weight_as="absolute"` the scale is 1. With `"share_of_task_gradient"` it is m_task/m_own,
    where m are exponential means, over optimizer steps, of the gradient norms of the two losses at
    the tensor of `shared_point`: a weight w makes the objective's gradient w times as long there as
    that of the task loss. Steps in which either gradient is 0 or not finite are skipped, and the
    scale is kept; before the first valid step it is 0. The scale carries no gradient.

    Norms are of the batch over all processes, averaged over the micro-batches of a step. The
    means change only in `observe`, so a checkpoint within an accumulation is that of a whole step.

    Args:
        objectives: by name.
        weight_as: absolute | share_of_task_gradient.
        schedule: constant | linear_decay (1 − t/T at step t of T).
        n_steps: T, the optimizer steps of the run.
    """

    norms_O2: Tensor  # exponential means of gradient norms: of the task loss, of the objective

    def __init__(
        self,
        objectives: Mapping[str, Objective],
        weight_as: WeightAs = WeightAs.absolute,
        schedule: WeightSchedule = WeightSchedule.constant,
        n_steps: float = 1,
    ) -> None:
        super().__init__()
        self.objectives = dict(objectives)
        self.is_share = weight_as == WeightAs.share_of_task_gradient
        self.schedule, self.n_steps = schedule, n_steps
        if self.is_share:
            self.register_buffer("norms_O2", torch.zeros(len(self.objectives), 2))
        self._measured: list[Tensor] = []  # norms [O, 2] per micro-batch of a step

    @property
    def vary(self) -> bool:
        """Whether a weight may differ from the objective's `weight`."""
        return self.is_share or self.schedule != WeightSchedule.constant

    def forward(
        self,
        losses: Mapping[str, Tensor],
        views: Sequence[ModelOutput],
        task_loss: Tensor | None,
        step: int,
    ) -> Mapping[str, float | Tensor]:
        """The weight of each objective for a micro-batch, after `step` optimizer steps."""
        factor = self.scheduled(step)
        weights = {name: objective.weight * factor for name, objective in self.objectives.items()}
        if not self.is_share:
            return weights
        assert task_loss is not None  # checked with the configuration
        self._measured.append(self._norms(losses, views, task_loss))
        task_norm_O, objective_norm_O = self._means().unbind(dim=1)
        scale_O = torch.where(objective_norm_O > 0, task_norm_O / objective_norm_O, 0.0)
        return {name: weights[name] * scale for name, scale in zip(weights, scale_O, strict=True)}

    def scheduled(self, step: int) -> float:
        """The factor of the schedule after `step` optimizer steps, in [0, 1].

        >>> decay = ObjectiveWeights({}, schedule=WeightSchedule.linear_decay, n_steps=4)
        >>> [decay.scheduled(step) for step in range(5)]
        [1.0, 0.75, 0.5, 0.25, 0.0]
        """
        decays = self.schedule == WeightSchedule.linear_decay
        return max(0.0, 1.0 - step / self.n_steps) if decays else 1.0

    @torch.no_grad()
    def observe(self) -> None:
        """Once per optimizer step: update the means with the norms of its micro-batches."""
        if self._measured:
            self.norms_O2.copy_(self._means())
            self._measured = []

    def _means(self) -> Tensor:
        """The means `[O, 2]`, including the micro-batches since the last step."""
        norms_MO2 = torch.stack(self._measured).to(self.norms_O2)
        valid_MO1 = (torch.isfinite(norms_MO2) & (norms_MO2 > 0)).all(dim=2, keepdim=True)
        n_O1 = valid_MO1.sum(dim=0)
        mean_O2 = torch.where(valid_MO1, norms_MO2, 0.0).sum(dim=0) / n_O1.clamp(min=1)
        # Both start at 0, and the bias cancels in their quotient.
        moving_O2 = MOMENTUM * self.norms_O2 + (1 - MOMENTUM) * mean_O2
        return torch.where(n_O1 > 0, moving_O2, self.norms_O2)

    def _norms(
        self, losses: Mapping[str, Tensor], views: Sequence[ModelOutput], task_loss: Tensor
    ) -> Tensor:
        """Gradient norms `[O, 2]` of the task loss and each objective, at their shared tensor."""
        task_squares: dict[int, Tensor] = {}  # by tensor, which several objectives may share
        squares = []
        for name, objective in self.objectives.items():
            passes = views[: objective.n_views]
            points = [
                x for view in passes if (x := shared_point(view, objective.read_points)) is not None
            ]
            for point in points[:1]:  # the first view, which the task loss reads
                if id(point) not in task_squares:
                    task_squares[id(point)] = squared_norm(task_loss, [point])
            task_square = task_squares[id(points[0])] if points else task_loss.new_zeros(())
            squares += [task_square, squared_norm(losses[name], points)]
        norms_O2 = sum_over_processes(torch.stack(squares).reshape(-1, 2)).sqrt() / n_processes()
        return norms_O2.detach()


def shared_point(output: ModelOutput, reads: Sequence[ReadPoint]) -> Tensor | None:
    """The lowest tensor read by an objective with these read points; the task loss depends on it.

    The hidden states of the lowest block among the read points (`all` begins with block 1), else
    the input of the isotropy layer at `pooled` (`before`) or the pooled embeddings. If nothing
    below it trains, the next tensor above with a gradient; None if there is none.
    """
    n_blocks = len(output.hidden_states) - 1
    site = output.site_embeddings.get("pooled")
    # A layer that returns its input returns the pooled embeddings themselves.
    before = output.pooled if site is None or site.after is site.before else site.before
    points = [*output.hidden_states, before, output.pooled]
    lowest = min(min(point.depths(n_blocks), default=0) for point in reads)
    return next((x for x in points[lowest:] if x.requires_grad), None)


def squared_norm(loss: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """Σ ‖∂loss/∂x‖² over the tensors x, without a graph; 0 where there is no gradient."""
    total = torch.zeros((), dtype=loss.dtype, device=loss.device)
    if not (tensors and loss.requires_grad):
        return total
    for gradient in torch.autograd.grad(loss, tensors, retain_graph=True, allow_unused=True):
        if gradient is not None:
            total = total + gradient.to(loss.dtype).square().sum()
    return total


class ExtraLosses(nn.Module):
    """Weighted sum of objectives, each on its read points, by the name of its logged loss.

    Args:
        objectives: by name.
        weights: of these objectives; None = constant weights.
    """

    def __init__(
        self,
        objectives: Mapping[str, Objective],
        weights: ObjectiveWeights | None = None,
    ) -> None:
        super().__init__()
        self.objectives = dict(objectives)
        self.parts = nn.ModuleDict(self.objectives)
        self.weights = weights or ObjectiveWeights(self.objectives)
        self.recent = StepMemory()

    def forward(
        self,
        views: Sequence[ModelOutput],
        batch: Batch,
        task_loss: Tensor | None = None,
        n_steps: int = 0,
        start: ModelOutput | None = None,
    ) -> tuple[Tensor | float, dict[str, Tensor]]:
        """The weighted sum, and each loss and counter by its log key.

        In float32 or higher, whatever the precision of the encoder. Weights may depend on the
        gradient of `task_loss` and on `n_steps`, the completed optimizer steps. Objectives with
        `reads_start` compare with `start`.
        """
        total: Tensor | float = 0.0
        logged: dict[str, Tensor] = {}
        losses: dict[str, Tensor] = {}
        if not self.objectives:
            return total, logged
        gatherer = StepGather(batch) if n_processes() > 1 else None
        labels_B = gatherer.labels_B if gatherer else batch.labels
        with torch.autocast(batch.labels.device.type, enabled=False):
            for name, objective in self.objectives.items():
                points = objective.read_points
                embeddings = [
                    read_points(view, batch, points, partial(gatherer, v) if gatherer else None)
                    for v, view in enumerate(views[: objective.n_views])
                ]
                tensors = [x for view in embeddings for x in view] if objective.remembers else []
                if objective.reads_start:
                    assert start is not None
                    gather = partial(gatherer, START) if gatherer else None
                    embeddings.append(read_points(start, batch, points, gather))
                losses[name] = loss = objective(embeddings, labels_B)
                logged[f"train/{name}"] = loss.detach()
                for counter, value in objective.counters.items():
                    logged[f"train/{name}/{counter}"] = value.detach().to(loss.device)
                self.recent.keep(name, [labels_B, *tensors])
            for name, weight in self.weights(losses, views, task_loss, n_steps).items():
                total = total + weight * losses[name]
                if self.weights.vary:
                    key = f"objective/{name}/effective_weight"
                    logged[key] = torch.as_tensor(weight).to(losses[name])
        return total, logged

    @torch.no_grad()
    def observe(self) -> None:
        """Once per optimizer step: pass the embeddings of all its micro-batches to objectives."""
        self.weights.observe()
        for name, (labels, *embeddings) in self.recent.take().items():
            objective = self.objectives[name]
            n = len(embeddings) // objective.n_views  # per view
            views = [embeddings[i : i + n] for i in range(0, len(embeddings), n)] if n else []
            objective.observe(views, labels)

    @torch.no_grad()
    def asks_for_pass(self, epoch: int) -> bool:
        """Whether an objective needs a pass over training examples before this epoch."""
        return any(objective.asks_for_pass(epoch) for objective in self.objectives.values())

    def prepare(self, epoch: int, passes: Passes) -> None:
        """At the start of an epoch: pass training examples to the objectives that need them.

        `passes` are in evaluation mode.
        """
        for objective in self.objectives.values():
            if objective.asks_for_pass(epoch):
                points = objective.read_points
                objective.prepare(
                    epoch, (read_points(output, batch, points) for batch, output in passes(None))
                )


def read_points(
    output: ModelOutput, batch: Batch, points: Iterable[ReadPoint], gather: Gather | None = None
) -> list[Tensor]:
    """Embeddings at the read points of a forward pass, in float32 or higher.

    `[B, P, D]` for pooled, before, cls and mean (P vectors of an example), `[N, D]` for tokens
    (without pads); `all/…` gives one per block. `gather` collects those of all processes.

    Raises:
        ValueError: a block that the encoder does not have.
    """
    embeddings: list[tuple[str, Tensor]] = []
    for point in points:
        if point.view is None:
            is_before = point.name == "before"
            x = output.site_embeddings["pooled"].before if is_before else output.pooled
            embeddings.append((point.name, x.reshape(*output.pooled.shape[:2], -1)))
            continue
        for block in point.depths(len(output.hidden_states) - 1):
            vectors = _of_block(output.hidden_states[block], batch, point.view)
            embeddings.append((f"layer_{block}/{point.view}", vectors))
    return [wide(gather(key, x) if gather else x) for key, x in embeddings]


def _of_block(hidden_ATD: Tensor, batch: Batch, view: str) -> Tensor:
    """The tokens `[N, D]` of a block, or one vector per sequence, `[B, Q, D]`."""
    if view == "tokens":
        return take_rows(hidden_ATD, batch.attention_mask.bool())
    if view == "cls":
        vectors_AD = cls_pool(hidden_ATD)
    else:
        pool = mean_pool if view == "mean" else last_pool
        vectors_AD = pool(wide(hidden_ATD), batch.attention_mask)
    vectors_QBD = vectors_AD.reshape(batch.n_sequences, len(batch.labels), -1)
    return vectors_QBD.transpose(0, 1)


class StepGather:
    """All-gather for the objectives of one step: each read point of a view, and labels, once.

    Objectives share gathered embeddings but not gradients. Gradients are summed over processes per
    objective, so that sums over objectives are made in single-process order.
    """

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.examples = self._whole(order_keys(len(batch.labels), 1, 1).flatten())
        self.labels_B = self.examples.gather(batch.labels)
        self._gathered: dict[tuple[int, str], Tensor] = {}

    @cached_property
    def tokens(self) -> WholeBatch:
        """Single-process order of the tokens of all processes."""
        mask_AT = self.batch.attention_mask.bool().cpu()
        shape = len(self.batch.labels), self.batch.n_sequences, mask_AT.shape[1]
        return self._whole(order_keys(*shape)[mask_AT])

    def __call__(self, view: int, key: str, x: Tensor) -> Tensor:
        """Embeddings of all processes at read point `key` of a view, in single-process order."""
        order = self.tokens if key.endswith("/tokens") else self.examples
        if (view, key) not in self._gathered:
            self._gathered[view, key] = order.gather(x.detach())
        return _Shared.apply(x, self._gathered[view, key], order.local_N)  # type: ignore[no-any-return]

    def _whole(self, keys_N: Tensor) -> WholeBatch:
        return WholeBatch(keys_N.to(self.batch.labels.device))


class _Shared(torch.autograd.Function):
    """Already gathered embeddings; backward sums their gradient over processes."""

    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, all_ND: Tensor, local_N: Tensor) -> Tensor:
        ctx.local_N = local_N
        return all_ND.view_as(all_ND)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return sum_over_processes(grads[0].contiguous())[ctx.local_N], None, None
