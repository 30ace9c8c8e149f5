"""Paths that make a training step shorter: which of them a run takes, and why not the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isotrain.config.read_points import read_point
from isotrain.encoders.attention import takes_attention, use_attention
from isotrain.encoders.base import Encoder
from isotrain.encoders.fast_dropout import draw_lanes, without_dropout
from isotrain.encoders.last_block import is_bert_like
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.objectives.base import Objective

TAKEN = "taken"


def take_paths(
    wanted: Any,
    model: IsotropicModel,
    objectives: Mapping[str, Objective],
    monitors_training: bool,
    batching: str,
    on_cpu: bool,
) -> dict[str, str]:
    """`taken`, or why not, by path; the model is changed to take them.

    Args:
        wanted: the keys of `speed`.
        model: encoder, with its adapters, layers and head.
        objectives: by name.
        monitors_training: whether the monitor measures training steps.
        batching: how training examples are grouped.
        on_cpu: whether the run trains on CPUs.
    """
    hindrances = {
        "dropout": without_dropout(model.encoder) if on_cpu else "for CPUs",
        "packing": _no_packing(model.encoder, batching),
        "last_block": _all_tokens(model, objectives, monitors_training),
    }
    paths = {
        name: (why or TAKEN) if wanted[name] else "switched off" for name, why in hindrances.items()
    }
    if paths["dropout"] == TAKEN:
        draw_lanes(model.encoder)
    if takes_attention(model.encoder):
        use_attention(model.encoder.model)
    if paths["packing"] == TAKEN:
        model.encoder.packs_tokens = True
    model.reads_all_tokens = paths["last_block"] != TAKEN
    return paths


def _no_packing(encoder: Encoder, batching: str) -> str:
    """Why tokens are not packed; empty where they are."""
    if not takes_attention(encoder) or not is_bert_like(encoder.blocks[-1]):
        return "for encoders like BERT"
    return "" if batching == "random" else f"data.batching={batching} pads little"


def _all_tokens(
    model: IsotropicModel, objectives: Mapping[str, Objective], monitors_training: bool
) -> str:
    """What of a training step needs every token of the last block; empty if nothing does."""
    n_blocks = model.encoder.n_blocks
    if model.pooling.reads == "all":
        return "the pooling reads all tokens"
    if not takes_attention(model.encoder) or not is_bert_like(model.encoder.blocks[-1]):
        return "for encoders like BERT"
    if sites := sorted({"tokens", f"layer_{n_blocks}"} & set(model.sites)):
        return f"site={sites[0]} reads all tokens"
    for name, objective in objectives.items():
        if any(n_blocks in read_point(text).blocks(n_blocks) for text in objective.reads):
            return f"objective={name} reads the last block"
    return "monitor.every_steps reads all tokens" if monitors_training else ""
