"""Shortcuts of a training step: which ones a run uses, and why not the others."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_warn
from torch.nn.functional import linear

from isotrain.encoders.attention import takes_attention, use_attention
from isotrain.encoders.base import Encoder
from isotrain.encoders.fast_dropout import draw_lanes, without_dropout
from isotrain.encoders.freezing import Plan, frozen_blocks, stage_at
from isotrain.encoders.frozen_prefix import FrozenPrefix, prefix_key
from isotrain.encoders.last_block import is_bert_like
from isotrain.encoders.trial import (
    batch_of,
    distance,
    in_evaluation,
    tolerance,
    training_without_dropout,
)
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.model.pooling import tokens_read
from isotrain.objectives.base import Objective
from isotrain.training.data import TaskData
from isotrain.types import Batch, EncoderOutput

TAKEN = "taken"
SLOW_BF16 = "this CPU is faster in float32"


def take_paths(
    cfg: Any, model: IsotropicModel, objectives: Mapping[str, Objective], plan: Plan, data: TaskData
) -> dict[str, str]:
    """Enable the shortcuts that a run can use: `taken`, or the reason why not, by name."""
    encoder, on_cpu = model.encoder, _on_cpu(cfg.trainer)
    is_like_bert = takes_attention(encoder) and is_bert_like(encoder.blocks[-1])
    hindrances = {
        "dropout": without_dropout(encoder) if on_cpu else "for CPUs",
        "last_block": _all_tokens(cfg, model, objectives),
        "packing": _padded(cfg, objectives, data),
        "frozen_prefix": _no_prefix(cfg, model, objectives, plan, data),
    }
    for_bert = "for encoders like BERT"
    paths = {name: why or TAKEN for name, why in hindrances.items()}
    if not is_like_bert:
        paths |= dict.fromkeys(("last_block", "packing", "frozen_prefix"), for_bert)
    paths |= {name: "switched off" for name in paths if not cfg.speed[name]}
    if on_cpu and str(cfg.trainer.get("precision")).startswith("bf16"):
        paths["bf16"] = SLOW_BF16 if bf16_speedup() < 1 else TAKEN
        if paths["bf16"] == SLOW_BF16:
            rank_zero_warn(f"trainer.precision={cfg.trainer.precision}: {SLOW_BF16}; use 32-true")
    if TAKEN in paths.values():
        take_tried(paths, encoder, max(1, highest_prefix(cfg, model, objectives)))
    model.reads_all_tokens = paths["last_block"] != TAKEN
    if cfg.speed.compile:
        why = _measured(cfg, objectives) if encoder.n_blocks else "the encoder has no blocks"
        paths["compile"] = why or TAKEN
        for block in () if why else encoder.blocks:
            block.compile(dynamic=True)  # in place: parameter names are unchanged
    return paths


def take_tried(paths: dict[str, str], encoder: Encoder, highest: int) -> None:
    """Enable the shortcuts that give the states of the exact step in a trial; drop the others.

    Args:
        paths: `taken` or why not, by name; changed in place.
        encoder: which still computes every step exactly.
        highest: last block that a frozen prefix may end with.
    """
    batch = batch_of(encoder)
    read_AT = tokens_read("first", batch)
    exact = _trained(encoder, batch)

    def agrees(output: EncoderOutput, first: int = 0) -> bool:
        pairs = zip(output.hidden_states[first:], exact.hidden_states[first:], strict=True)
        gaps = [
            distance(*pair, batch.attention_mask) for pair in (*pairs, (output.last, exact.last))
        ]
        return max(gaps) <= tolerance(exact.last)

    def last_block_agrees() -> bool:
        last = _trained(encoder, replace(batch, read_mask=read_AT)).last
        return distance(last, exact.last, read_AT) <= tolerance(last)

    def prefix_agrees() -> bool:
        lengths = batch.attention_mask.sum(dim=1)
        ids, types = (
            [row[:n].tolist() for row, n in zip(x, lengths, strict=True)]
            for x in (batch.input_ids, batch.token_type_ids)
        )
        for level in sorted({1, highest}):
            with in_evaluation(encoder):
                states = encoder.states_after(level, ids, types)  # type: ignore[operator]
            encoder.frozen_prefix = partial(lambda states_ATD, _: states_ATD, states)
            encoder.frozen_prefix.level = level
            try:
                output = _trained(encoder, batch)
            finally:
                encoder.frozen_prefix = None
            if not agrees(output, level):
                return False
        return True

    def holds(path: str, agrees: Callable[[], bool]) -> bool:
        if paths.get(path, TAKEN) == TAKEN:
            try:
                if agrees():
                    return True
                paths[path] = "its states differ from those of the exact step in a trial"
            except Exception as error:  # of any kind, in an architecture that it was not made for
                paths[path] = f"it failed in a trial ({type(error).__name__}: {error})"
        return False

    if paths["dropout"] == TAKEN:
        draw_lanes(encoder)
    if takes_attention(encoder):
        implementation = encoder.model.config._attn_implementation
        use_attention(encoder.model)
        if not holds("attention", lambda: agrees(_trained(encoder, batch))):
            encoder.model.set_attn_implementation(implementation)
            why = paths["attention"]
            paths |= {p: why for p in ("last_block", "packing") if paths[p] == TAKEN}
    encoder.packs_tokens = paths["packing"] == TAKEN
    encoder.packs_tokens = holds("packing", lambda: agrees(_trained(encoder, batch)))
    holds("last_block", last_block_agrees)
    holds("frozen_prefix", prefix_agrees)


def _trained(encoder: Encoder, batch: Batch) -> EncoderOutput:
    """The output of a training step without dropout."""
    with training_without_dropout(encoder):
        output: EncoderOutput = encoder(batch, {})
    return output


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
        self._level = 0  # of the current stage

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        """Start a stage at its first step."""
        encoder = pl_module.model.encoder
        names = stage_at(self.plan, trainer.global_step)
        level = min(frozen_blocks(encoder, names), self.highest)
        if level != self._level:
            self._level = level
            encoder.frozen_prefix = self._prefix(trainer, encoder) if level else None

    def on_train_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Release the memory-mapped states."""
        pl_module.model.encoder.frozen_prefix, self._level = None, 0

    def _prefix(self, trainer: Any, encoder: Any) -> FrozenPrefix | None:
        examples = trainer.datamodule.examples["train"]
        key = prefix_key(encoder, self._level, examples, str(trainer.precision))
        compute = partial(encoder.states_after, self._level)
        try:
            return FrozenPrefix(self.folder, key, examples, self._level, encoder.width, compute)
        except OSError as error:
            rank_zero_warn(
                f"states of frozen blocks cannot be kept in {self.folder} ({error}); each step "
                "computes them"
            )
            return None


def highest_prefix(cfg: Any, model: IsotropicModel, objectives: Mapping[str, Objective]) -> int:
    """Highest block that the frozen prefix may end with; nothing below it is read or edited."""
    n_blocks = model.encoder.n_blocks
    points = [point for objective in objectives.values() for point in objective.read_points]
    read = [level for point in points for level in point.levels(n_blocks)]
    changed = [block for block in model.blocks_of.values() if block is not None]
    measured = [0] if cfg.metric and cfg.monitor.every_steps else []
    return min([n_blocks, *read, *changed, *measured])


def _no_prefix(
    cfg: Any,
    model: IsotropicModel,
    objectives: Mapping[str, Objective],
    plan: Plan,
    data: TaskData,
) -> str:
    """The reason why states of frozen blocks are not cached; empty if they are."""
    level = max(frozen_blocks(model.encoder, names) for names in plan.values())
    if level == 0:
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
    n_blocks = model.encoder.n_blocks
    if model.pooling.reads == "all":
        return "the pooling reads all tokens"
    if sites := sorted({"tokens", f"layer_{n_blocks}"} & set(model.sites)):
        return f"site={sites[0]} reads all tokens"
    for name, objective in objectives.items():
        if any(n_blocks in point.levels(n_blocks) for point in objective.read_points):
            return f"objective={name} reads the last block"
    measured = cfg.metric and cfg.monitor.every_steps
    return "monitor.every_steps reads all tokens" if measured else ""


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
    if cfg.training.objective_weight_as != "share_of_task_gradient":
        return ""
    for name, objective in objectives.items():
        if any(point.view is not None for point in objective.read_points):
            return f"the gradient of objective={name} is measured at a block"
    return ""


def _on_cpu(trainer: Mapping[str, Any]) -> bool:
    """Whether a trainer trains on CPUs."""
    asked = trainer.get("accelerator") or "auto"
    return asked == "cpu" or (asked == "auto" and not torch.accelerator.is_available())


def bf16_speedup() -> float:
    """Speed-up of bfloat16 over float32 matrix products on this CPU: best of 50, one thread.

    CPU flags are not informative: with only avx512_bf16, a Zen 4 gains and a Xeon loses.
    """
    times: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several threads would wait for other work on the machine
    for _ in range(50):
        for dtype, taken in times.items():
            x_ND, weight = torch.ones(128, 384, dtype=dtype), torch.ones(1536, 384, dtype=dtype)
            start = time.perf_counter()
            linear(x_ND, weight)
            taken.append(time.perf_counter() - start)
    torch.set_num_threads(n_threads)
    return min(times[torch.float32]) / min(times[torch.bfloat16])
