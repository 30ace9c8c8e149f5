"""Objective weights: constant, scheduled, or relative to the task's gradient norm.

O objectives, L blocks.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from isotrain.config.read_points import ReadPoint
from isotrain.config.schema import WeightAs, WeightSchedule
from isotrain.model.distributed import n_processes, sum_over_processes
from isotrain.objectives.base import Objective
from isotrain.types import ModelOutput

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
        scheduled = self.scheduled(step)
        weights = {name: one.weight * scheduled for name, one in self.objectives.items()}
        if not self.is_share:
            return weights
        assert task_loss is not None  # checked with the configuration
        self._measured.append(self._norms(losses, views, task_loss))
        of_task_O, of_own_O = self._means().unbind(dim=1)
        scale_O = torch.where(of_own_O > 0, of_task_O / of_own_O, 0.0)
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
        measured_MO2 = torch.stack(self._measured).to(self.norms_O2)
        counts_MO1 = (torch.isfinite(measured_MO2) & (measured_MO2 > 0)).all(dim=2, keepdim=True)
        n_O1 = counts_MO1.sum(dim=0)
        newest_O2 = torch.where(counts_MO1, measured_MO2, 0.0).sum(dim=0) / n_O1.clamp(min=1)
        # Both start at 0, and the bias cancels in their quotient.
        moved_O2 = MOMENTUM * self.norms_O2 + (1 - MOMENTUM) * newest_O2
        return torch.where(n_O1 > 0, moved_O2, self.norms_O2)

    def _norms(
        self, losses: Mapping[str, Tensor], views: Sequence[ModelOutput], task_loss: Tensor
    ) -> Tensor:
        """Gradient norms `[O, 2]` of the task loss and each objective, at their shared tensor."""
        of_task: dict[int, Tensor] = {}  # by tensor, which several objectives may share
        squares = []
        for name, objective in self.objectives.items():
            read = views[: objective.n_views]
            points = [
                x for view in read if (x := shared_point(view, objective.read_points)) is not None
            ]
            for point in points[:1]:  # the first view, which the task loss reads
                if id(point) not in of_task:
                    of_task[id(point)] = squared_norm(task_loss, [point])
            first = of_task[id(points[0])] if points else task_loss.new_zeros(())
            squares += [first, squared_norm(losses[name], points)]
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
