"""Shortcuts of a training step: the ones that a run uses, and why it does not use the others."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_warn
from torch import nn
from torch.nn.functional import linear

from isotrain.encoders.base import Encoder
from isotrain.encoders.fast import TAKEN, FrozenPrefix, make_fast
from isotrain.encoders.freezing import Plan, frozen_blocks, stage_at
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.objectives.base import Objective
from isotrain.training.data import TaskData


def take_paths(
    cfg: Any, model: IsotropicModel, objectives: Mapping[str, Objective], plan: Plan, data: TaskData
) -> dict[str, str]:
    """Enable the shortcuts that a run can use: `taken`, or the reason why not, by name."""
    encoder, on_cpu = model.encoder, _on_cpu(cfg.trainer)
    has_dropout = any(isinstance(m, nn.Dropout) and m.p > 0 for m in encoder.modules())
    reason = "" if has_dropout else "the encoder has no dropout"
    hindrances = {
        "dropout": reason if on_cpu else "for CPUs",
        "last_block": _all_tokens(cfg, model, objectives),
        "packing": _padded(cfg, objectives, data),
        "frozen_prefix": _no_prefix(cfg, model, objectives, plan, data),
    }
    hindrances |= {name: "switched off" for name in hindrances if not cfg.speed[name]}
    highest = max(1, highest_prefix(cfg, model, objectives))
    model.fast, paths = make_fast(encoder, model.pooling.reads, highest, hindrances)
    if cfg.speed.compile:
        paths["compile"] = status = _measured(cfg, objectives) or TAKEN
        for block in encoder.blocks if status == TAKEN else ():
            block.compile(dynamic=True)  # in place: parameter names are unchanged
    return paths


class Prefix(pl.Callback):
    """Load states after frozen blocks from disk, in each stage of a freezing schedule.

    Called after `Freezing`. The states are those of the training examples after the highest block
    up to which nothing trains or is read; gradual unfreezing shortens this prefix.

    Args:
        plan: the freezing schedule.
        highest: the last block that may belong to the prefix.
        folder: of the files.
    """

    def __init__(self, plan: Plan, highest: int, folder: Path) -> None:
        super().__init__()
        self.plan, self.highest, self.folder = plan, highest, folder

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        """Start a stage at its first step."""
        model = pl_module.model
        names = stage_at(self.plan, trainer.global_step)
        depth = min(frozen_blocks(model.encoder, names), self.highest)
        if depth != model.fast.n_frozen:
            model.fast.n_frozen = depth
            model.fast.frozen_states = self._states(trainer, model.encoder, depth)

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Release the memory-mapped states."""
        pl_module.model.fast.n_frozen, pl_module.model.fast.frozen_states = 0, None

    def _states(self, trainer: Any, encoder: Encoder, depth: int) -> FrozenPrefix | None:
        if depth == 0:
            return None
        examples, precision = trainer.datamodule.examples["train"], str(trainer.precision)
        try:
            return FrozenPrefix(self.folder, encoder, depth, examples, precision)
        except OSError as error:
            rank_zero_warn(
                f"states of frozen blocks cannot be kept in {self.folder} ({error}); each step "
                "computes them"
            )
            return None


def readers(cfg: Any, model: IsotropicModel, objectives: Mapping[str, Objective]) -> dict[int, str]:
    """What reads or changes a hidden state at any token in training, by its depth."""
    n_blocks = model.encoder.n_blocks
    monitored_depths = range(n_blocks + 1) if cfg.metric and cfg.monitor.every_steps else ()
    reader_of = dict.fromkeys(monitored_depths, "monitor.every_steps")
    for name, objective in objectives.items():
        for point in objective.read_points:
            reader_of |= dict.fromkeys(point.depths(n_blocks), f"objective={name}")
    for site, block in model.blocks_of.items():
        if site != "pooled":
            reader_of[block or n_blocks] = f"site={site}"
    return reader_of


def highest_prefix(cfg: Any, model: IsotropicModel, objectives: Mapping[str, Objective]) -> int:
    """Highest block that the frozen prefix may end with; nothing below it is read or changed."""
    return min([model.encoder.n_blocks, *readers(cfg, model, objectives)])


def _no_prefix(
    cfg: Any,
    model: IsotropicModel,
    objectives: Mapping[str, Objective],
    plan: Plan,
    data: TaskData,
) -> str:
    """The reason why states of frozen blocks are not cached; empty if they are."""
    if not any(frozen_blocks(model.encoder, names) for names in plan.values()):
        return "no block is frozen"
    if cfg.training.frozen_dropout:
        return "training.frozen_dropout=true"
    if not cfg.cache_dir:
        return "cache_dir=null"
    if highest_prefix(cfg, model, objectives) == 0:
        return "a layer, objective or monitor reads frozen blocks"
    n_tokens = sum(len(ids) for e in data.examples["train"] for ids in e.input_ids)
    gb = n_tokens * model.encoder.width * 4 / 1e9
    limit = cfg.speed.prefix_gb
    return "" if gb <= limit else f"{gb:.1f} GB, above speed.prefix_gb={limit:g}"


def _all_tokens(cfg: Any, model: IsotropicModel, objectives: Mapping[str, Objective]) -> str:
    """The reason why a training step needs every token of the last block; empty if it does not."""
    reader = readers(cfg, model, objectives).get(model.encoder.n_blocks)
    reader = "the pooling" if model.pooling.reads == "all" else reader
    return f"{reader} reads all tokens" if reader else ""


def _padded(cfg: Any, objectives: Mapping[str, Objective], data: TaskData) -> str:
    """The reason why the tokens of a training step are not packed; empty if they are."""
    # Examples are sorted by length; the sentences of a pair differ in it.
    if cfg.data.batching == "length" and data.task.n_sequences == 1:
        return "data.batching=length pads little"
    return _measured(cfg, objectives)


def _measured(cfg: Any, objectives: Mapping[str, Objective]) -> str:
    """The objective whose gradient is measured at block states; empty if there is none.

    Packed blocks record copies of their states, and compiled ones allow only one backward pass.
    """
    if cfg.training.objective_weight_as == "share_of_task_gradient":
        for name, objective in objectives.items():
            if any(point.view is not None for point in objective.read_points):
                return f"the gradient of objective={name} is measured at a block"
    return ""


def _on_cpu(trainer: Mapping[str, Any]) -> bool:
    """Whether a trainer trains on CPUs."""
    accelerator = trainer.get("accelerator") or "auto"
    return accelerator == "cpu" or (accelerator == "auto" and not torch.accelerator.is_available())


def bf16_speedup() -> float:
    """Speed-up of bfloat16 over float32 matrix products on this CPU: best of 50, one thread.

    CPU flags are not informative: with only avx512_bf16, a Zen 4 gains and a Xeon loses.
    """
    times: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several threads would wait for other work on the machine
    for _ in range(50):
        for dtype, seconds in times.items():
            x_ND, weight = torch.ones(128, 384, dtype=dtype), torch.ones(1536, 384, dtype=dtype)
            start = time.perf_counter()
            linear(x_ND, weight)
            seconds.append(time.perf_counter() - start)
    torch.set_num_threads(n_threads)
    return min(times[torch.float32]) / min(times[torch.bfloat16])
