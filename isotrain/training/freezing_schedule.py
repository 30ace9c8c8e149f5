"""Apply the freezing schedule of a run, and freeze parameters that no loss reads.

Depths: 0 = embeddings, l = block l of L, then the parts after the blocks. A schedule depends only
on the step, so a resumed run continues where it stopped.
"""

from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy
from torch import nn

from isotrain.encoders.base import Encoder
from isotrain.encoders.freezing import (
    Plan,
    depths,
    ever_trained,
    rest_frozen_parts,
    set_trainable,
    stage_at,
)
from isotrain.model.isotropic_model import IsotropicModel, depth_of_site
from isotrain.objectives.base import Objective
from isotrain.tasks.base import Task


class Freezing(pl.Callback):
    """Apply the freezing schedule: from its first step on, a stage trains its parameters.

    Args:
        plan: trainable encoder parameters, by the first step of each stage.
        frozen_dropout: whether dropout is active in frozen embeddings and blocks.
    """

    def __init__(self, plan: Plan, frozen_dropout: bool = False) -> None:
        super().__init__()
        self.plan, self.frozen_dropout = plan, frozen_dropout
        self._applied: frozenset[str] | None = None  # encoder parameters that train now

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        """Expose exactly the parameters that train in any stage to optimizer and DDP."""
        if stage == "fit":
            set_trainable(pl_module.model.encoder, ever_trained(self.plan))
            self._applied = None

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        """Start a stage at its first step."""
        names = stage_at(self.plan, trainer.global_step)
        if names == self._applied:
            return
        set_trainable(pl_module.model.encoder, names)
        ddp_names = ever_trained(self.plan) if self._applied is None else self._applied
        if names != ddp_names and isinstance(trainer.strategy, DDPStrategy):
            trainer.strategy.model = pl_module  # wrap again: DDP expects the current parameters
            trainer.strategy.configure_ddp()
        self._applied = names
        if not self.frozen_dropout:
            rest_frozen_parts(pl_module.model.encoder)


def freeze_above(model: IsotropicModel, depth: int) -> None:
    """Freeze the isotropy layers above `depth`, and the head if no loss reads it."""
    n_blocks = model.encoder.n_blocks
    for site, layer in model.transforms.items():
        if depth_of_site(site, n_blocks) > depth:
            layer.requires_grad_(False)
    if depth < n_blocks + 3:
        model.head.requires_grad_(False)


def highest_depth_read(task: Task, objectives: Mapping[str, Objective], n_blocks: int) -> int:
    """The highest depth any loss reads; parameters above it get no gradient.

    A task loss reads the head, L + 3. Without one it is the highest read point of the objectives
    with a non-zero weight; −1 = none.
    """
    if task.has_loss:
        return n_blocks + 3
    weighted = [objective for objective in objectives.values() if objective.weight != 0]
    points = [point for objective in weighted for point in objective.read_points]
    return max((max(point.depths(n_blocks)) for point in points), default=-1)


OUTSIDE = {"model.head.": "head", "model.transforms.": "isotropy layers", "extra.": "objectives"}


def describe(
    plan: Plan, module: nn.Module, encoder: Encoder, optimizer: torch.optim.Optimizer
) -> list[dict[str, Any]]:
    """Describe each stage: first step; groups with parts, parameters, learning rate and decay.

    The learning rate is the peak of its schedule. `optimizer` has all parameters of any stage.
    """
    name_of = {id(p): name for name, p in encoder.named_parameters()}
    depth_of = depths(encoder)
    part_of = {}
    for name, parameter in module.named_parameters():
        depth = depth_of.get(name_of.get(id(parameter), ""))
        part_of[id(parameter)] = _part(name, depth, encoder.n_blocks)
    stages = []
    for first_step, names in sorted(plan.items()):
        groups = []
        for group in optimizer.param_groups:
            parameters = [p for p in group["params"] if name_of.get(id(p)) in names | {None}]
            if parameters:
                groups.append(
                    {
                        "parts": list(dict.fromkeys(part_of[id(p)] for p in parameters)),
                        "n_parameters": sum(p.numel() for p in parameters),
                        "lr": group["lr"],
                        "weight_decay": group.get("weight_decay", 0.0),
                    }
                )
        n_parameters = sum(group["n_parameters"] for group in groups)
        stages.append({"from_step": first_step, "n_parameters": n_parameters, "groups": groups})
    return stages


def _part(name: str, depth: int | None, n_blocks: int) -> str:
    if depth is None:
        return next((part for prefix, part in OUTSIDE.items() if name.startswith(prefix)), "others")
    return "embeddings" if depth == 0 else f"block {depth}" if depth <= n_blocks else "final norm"
