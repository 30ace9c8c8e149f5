"""Adapters (PEFT): small trainable modules added in place to the blocks of a frozen encoder.

An adapter is a function `(encoder) -> frozenset[str] | None`: the names of the parameters that
train afterwards, all others being frozen; None if nothing was added.
"""

from typing import Annotated, Any

from pydantic import Field
from torch import nn

from isotrain.arguments import checked
from isotrain.encoders.base import Encoder

LORA_TARGETS = {  # of architectures without a default in peft
    "distilbert": ["q_lin", "v_lin"],
    "mpnet": ["attn.q", "attn.v"],
    "modernbert": ["Wqkv"],
}
IA3_TARGETS = {"distilbert": ["k_lin", "v_lin", "ffn.lin2"]}
IA3_INPUTS = {"distilbert": ["ffn.lin2"]}  # maps whose input is scaled


def no_adapters(encoder: Encoder) -> None:
    """Add nothing."""


@checked
def lora(
    encoder: Encoder,
    r: Annotated[int, Field(ge=1)] = 8,
    alpha: Annotated[float, Field(gt=0)] = 16.0,
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0,
    target_modules: list[str] | None = None,
) -> frozenset[str]:
    """Add LoRA factors (Hu et al. 2022) to linear maps; their parameter names.

    W becomes W + (alpha / r) B A. A [r, D_in] is drawn from torch's global random state and
    B [D_out, r] is zero, so that the encoder's initial output is bit-identical.

    Args:
        encoder: modified in place.
        r: rank of the update.
        alpha: scale of the update, times r.
        dropout: dropout rate of A's inputs, in [0, 1).
        target_modules: suffixes of the names of linear maps; None = the usual ones: query and
            value in BERT and RoBERTa, the joint map of query, key and value in GPT-2.

    Raises:
        ValueError: no linear map has such a name, or the architecture has no default.
    """
    from peft import LoraConfig
    from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING

    model = encoder.model
    name = model.config.model_type
    known = {*TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING, *LORA_TARGETS}
    if target_modules is None and name not in known:
        raise ValueError(
            f"peft=lora knows no linear maps to adapt in {name}; name them by "
            "peft.target_modules=[…], suffixes of the names of its linear maps"
        )
    config = LoraConfig(
        r=r,
        lora_alpha=alpha,  # type: ignore[arg-type]  # a float works
        lora_dropout=dropout,
        target_modules=target_modules or LORA_TARGETS.get(name),
        fan_in_fan_out=_stores_inputs_first(model),
    )
    return _inject(encoder, config)


def ia3(encoder: Encoder) -> frozenset[str]:
    """Add (IA)³ scales (Liu et al. 2022) to key, value and feed-forward maps; their names.

    Each scale starts as a vector of ones: the encoder's initial output is bit-identical.
    peft chooses the maps, and whether input or output is scaled, by the architecture.

    Raises:
        ValueError: peft does not support the architecture.
    """
    from peft import IA3Config

    model = encoder.model
    config = IA3Config(
        target_modules=IA3_TARGETS.get(model.config.model_type),
        feedforward_modules=IA3_INPUTS.get(model.config.model_type),
        fan_in_fan_out=_stores_inputs_first(model),
    )
    return _inject(encoder, config)


def _inject(encoder: Encoder, config: Any) -> frozenset[str]:
    """Add adapters, freeze everything else, and return the names of trained parameters."""
    from peft import inject_adapter_in_model

    inject_adapter_in_model(config, encoder.model)
    return frozenset(name for name, p in encoder.named_parameters() if p.requires_grad)


def _stores_inputs_first(model: nn.Module) -> bool:
    """Whether linear maps store [D_in, D_out], as in GPT-2."""
    return any(type(module).__name__ == "Conv1D" for module in model.modules())
