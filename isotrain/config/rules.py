"""What a composed configuration must fulfil, judged before anything heavy is imported."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig

from isotrain.arguments import Bounds
from isotrain.config.any_root import (
    BOUNDS_OF_ANY,
    missing_keys,
    number_mistakes,
    resolved,
    secret_mistakes,
    target_mistakes,
)
from isotrain.config.cluster_rule import cluster_mistakes
from isotrain.config.data_rule import data_mistakes
from isotrain.config.freezing_rule import freezing_mistakes
from isotrain.config.monitor_rule import monitor_mistakes
from isotrain.config.objective_rule import objective_mistakes
from isotrain.config.processes import number_asked_for
from isotrain.config.reading import class_constant
from isotrain.config.schema import SECTIONS
from isotrain.config.selection_rule import selection_mistakes
from isotrain.config.shapes import is_whole, with_defaults, wrong_keys, wrong_shapes
from isotrain.config.task_rule import task_mistakes

BOUNDS = {  # of numbers; those of a part stand in its annotations
    "data.batch_size": Bounds(1),
    "data.eval_batch_size": Bounds(1),
    "data.holdout": Bounds(above=0, below=1),
    "training.prefill_batches": Bounds(1),
    "training.refit_rows": Bounds(2),
    "training.patience": Bounds(1),
    "training.warmup_fraction": Bounds(0, 1),
    "training.head_lr_factor": Bounds(0),
    "training.layer_decay": Bounds(above=0, most=1),
    "training.reinit_blocks": Bounds(0),
    "monitor.max_rows": Bounds(2),
    "monitor.every_steps": Bounds(0),
    "monitor.map_rows": Bounds(0),
    "checkpoint.every_steps": Bounds(0),
    "optimizer.lr": Bounds(0),
    "optimizer.weight_decay": Bounds(0),
    "trainer.accumulate_grad_batches": Bounds(1),
    "trainer.gradient_clip_val": Bounds(0),
    "trainer.log_every_n_steps": Bounds(1),
    "trainer.val_check_interval": Bounds(above=0),
    **BOUNDS_OF_ANY,
}


def check(cfg: DictConfig) -> None:
    """Refuse a configuration that cannot run, every mistake at once.

    Raises:
        ValueError: the mistakes, one a line; `mistakes_in` says which there are.
    """
    if mistakes := mistakes_in(cfg):
        raise ValueError("\n".join(mistakes))


def mistakes_in(cfg: DictConfig) -> list[str]:
    """What is wrong with a configuration: keys, types, targets, and keys that do not go together.

    A mistake states the rule, what was given, and the fix.
    """
    if missing := missing_keys(cfg):
        return [f"{key} has no value; set {key}=..." for key in missing]
    content, mistakes = resolved(cfg)
    mistakes += wrong_keys(content, SECTIONS, "a run")
    mistakes += secret_mistakes(cfg)
    content = with_defaults(content)  # what was deleted is told, and hides nothing else
    mistakes += wrong_shapes(content)
    if not is_whole(content):  # the rules below read its parts
        return mistakes
    mistakes += target_mistakes(content)
    mistakes += number_mistakes(content, BOUNDS)
    mistakes += data_mistakes(content["data"])
    mistakes += selection_mistakes(content)
    mistakes += _site_mistakes(content)
    mistakes += objective_mistakes(content)
    mistakes += task_mistakes(content)
    mistakes += freezing_mistakes(content)
    mistakes += monitor_mistakes(content)
    mistakes += _trainer_mistakes(content["trainer"], content["optimizer"])
    if not mistakes:  # its arithmetic needs sound numbers
        mistakes += cluster_mistakes(content)
    return mistakes


def _site_mistakes(content: dict[str, Any]) -> list[str]:
    site: Sequence[str] = content["site"]
    reads = class_constant(content["pooling"]["_target_"], "reads")
    mistakes = []
    if not site or len(set(map(str, site))) != len(site):
        mistakes.append(f"site must name each place once and at least one, got {site}")
    if odd := [str(s) for s in site if not re.fullmatch(r"pooled|tokens|layer_[1-9]\d*", str(s))]:
        mistakes.append(f"site must be pooled, tokens or layer_k (k from 1), got {', '.join(odd)}")
    if content["rows"] == "no_special":
        if set(site) <= {"pooled"}:
            mistakes.append(
                f"rows=no_special chooses the rows of a token site, and site={site} has none; add "
                "tokens or layer_k, or use rows=all"
            )
        elif set(site) <= {"pooled", "tokens"} and reads in ("first", "last"):
            mistakes.append(
                "rows=no_special leaves CLS untouched, and the token that ends a sentence, so with "
                "pooling=cls or last a layer at tokens would do nothing; use pooling=mean or "
                "spans, or rows=all"
            )
    if (content["isotropy"].get("protect") or {}).get("labels"):
        several = {  # what gives several rows to an example, and the way out
            f"site={site}": ([*site] != ["pooled"], "site=[pooled]"),
            "task.form=bi": (content["task"].get("form") == "bi", "task.form=cross"),
            "pooling=spans": (reads == "spans", "pooling=cls or mean"),
        }
        for given, (is_several, way_out) in several.items():
            if is_several:
                mistakes.append(
                    "isotropy.protect.labels=true needs one row an example, which owns its label, "
                    f"and {given} gives several; use {way_out}, or isotropy.protect.labels=false"
                )
    task = content["task"]["_target_"]
    mistake = spans_mistake(reads, class_constant(task, "n_spans"), task.rpartition(".")[2])
    return [*mistakes, mistake] if mistake else mistakes


def spans_mistake(reads: str | None, n_spans: int | None, task: str) -> str | None:
    """A pooling that reads spans, and a task without; None where that is well, or not known."""
    if reads != "spans" or n_spans != 0:
        return None
    return f"pooling=spans needs target words, and task {task} has none; use cls"


def _trainer_mistakes(trainer: dict[str, Any], optimizer: dict[str, Any]) -> list[str]:
    mistakes = []
    if trainer.get("num_nodes", 1) != 1:
        mistakes.append("trainer.num_nodes must be 1: several machines are not tested")
    try:
        number_asked_for(trainer.get("devices", 1))
    except ValueError as error:
        mistakes.append(str(error))
    if trainer.get("max_epochs", -1) == -1 and trainer.get("max_steps", -1) == -1:
        mistakes.append("trainer.max_epochs and max_steps are both -1: training would never end")
    scaled = str(trainer.get("precision")) in ("16", "16-mixed")
    if scaled and optimizer.get("fused") and trainer.get("gradient_clip_val"):
        mistakes.append(
            "trainer.precision=16-mixed cannot clip gradients with a fused optimizer; add "
            "optimizer.fused=false, or use bf16-mixed"
        )
    return mistakes
