"""The keys of what trains, against each other, judged without importing anything."""

from __future__ import annotations

from typing import Any

NO_FREEZING = "isotrain.encoders.freezing.freeze_nothing"
HEAD_ONLY = "isotrain.encoders.freezing.freeze_encoder"
PATTERNS = "isotrain.encoders.freezing.train_only"
NO_ADAPTERS = "isotrain.encoders.adapters.no_adapters"


def freezing_mistakes(content: dict[str, Any]) -> list[str]:
    """What is wrong with the choice of what trains, or would change nothing."""
    freezing, training = content["freezing"], content["training"]
    target, decay = freezing["_target_"], training["layer_decay"]
    all_train, has_adapters = target == NO_FREEZING, content["peft"]["_target_"] != NO_ADAPTERS
    mistakes = []
    if decay != 1 and target == HEAD_ONLY and not has_adapters:
        mistakes.append(
            f"training.layer_decay={decay} sets rates of the encoder, and with freezing=head_only "
            "none of it trains; use training.layer_decay=1"
        )
    if has_adapters and not all_train:
        mistakes.append(
            "peft trains its adapters and freezes the rest of the encoder; leave freezing=none, "
            "or use peft=none"
        )
    if training["frozen_dropout"] is False and all_train and not has_adapters:
        mistakes.append(
            "training.frozen_dropout=false acts where something is frozen, and with freezing=none "
            "nothing is; use training.frozen_dropout=true"
        )
    named = content["peft"].get("target_modules")
    if named is not None and not _is_names(named):
        mistakes.append(
            "peft.target_modules must be a list of names, such as "
            f"'peft.target_modules=[query]', or null, got {named}"
        )
    if target == PATTERNS and "patterns" in freezing:
        patterns = freezing["patterns"]
        if not _is_names(patterns):
            mistakes.append(
                "freezing.patterns must be a list of at least one pattern, such as "
                f"'freezing.patterns=[*.bias]', got {patterns}"
            )
    return mistakes


def _is_names(given: Any) -> bool:
    """Whether it is a list of at least one name."""
    return isinstance(given, list) and bool(given) and all(isinstance(g, str) for g in given)
