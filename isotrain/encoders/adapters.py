"""Small trained additions to a frozen encoder (PEFT), put into its blocks in place.

An adapter is a function `(encoder) -> frozenset[str] | None`: the names of the parameters that
train from then on, all others being frozen; None where nothing was added.
"""

from __future__ import annotations

from typing import Annotated, Any

from torch import nn

from isotrain.arguments import Bounds, checked
from isotrain.encoders.base import Encoder
from isotrain.encoders.on_disk import NO_PEFT

LORA_TARGETS = {"distilbert": ["q_lin", "v_lin"]}  # of architectures that peft has no default for
IA3_TARGETS = {"distilbert": ["k_lin", "v_lin", "ffn.lin2"]}
IA3_INPUTS = {"distilbert": ["ffn.lin2"]}  # those whose input is scaled


def no_adapters(encoder: Encoder) -> None:
    """Nothing is added."""


@checked
def lora(
    encoder: Encoder,
    r: Annotated[int, Bounds(1)] = 8,
    alpha: Annotated[float, Bounds(above=0)] = 16.0,
    dropout: Annotated[float, Bounds(0, below=1)] = 0.0,
    target_modules: list[str] | None = None,
) -> frozenset[str]:
    """Names of the factors that low-rank adaptation (Hu et al. 2022) puts beside linear maps.

    W becomes W + (alpha / r) B A. A [r, D_in] is drawn from torch's global random state and
    B [D_out, r] is zero, so that the encoder starts as it was, bit by bit.

    Args:
        encoder: changed in place.
        r: rank of what is added.
        alpha: its scale, times r.
        dropout: share of A's inputs dropped in training, in [0, 1).
        target_modules: ends of the names of linear maps; None = those usual for the architecture:
            query and value of every block in BERT and RoBERTa, the one map of query, key and
            value in GPT-2.

    Raises:
        ValueError: the package peft is missing, `target_modules` is no list or an empty one, no
            linear map has such a name, or none is known for the architecture.
    """
    if target_modules is not None and (isinstance(target_modules, str) or not target_modules):
        raise ValueError(
            "peft.target_modules must be a list of names, such as [query], or null, got "
            f"{target_modules!r}"
        )
    peft, model = _peft("lora"), _model(encoder)
    targets = target_modules or LORA_TARGETS.get(model.config.model_type)
    return _inject(
        encoder,
        peft.LoraConfig(
            r=r,
            lora_alpha=alpha,
            lora_dropout=dropout,
            target_modules=targets,
            fan_in_fan_out=_stores_inputs_first(model),
        ),
    )


def ia3(encoder: Encoder) -> frozenset[str]:
    """Names of the scales that (IA)³ (Liu et al. 2022) puts on key, value and feed-forward maps.

    Each scale is a vector of ones at the start, so that the encoder starts as it was, bit by bit.
    Which maps these are, and whether input or output is scaled, is the package's choice for the
    architecture.

    Raises:
        ValueError: the package peft is missing, or it has no choice for the architecture.
    """
    peft, model = _peft("ia3"), _model(encoder)
    kind = model.config.model_type
    return _inject(
        encoder,
        peft.IA3Config(
            target_modules=IA3_TARGETS.get(kind),
            feedforward_modules=IA3_INPUTS.get(kind),
            fan_in_fan_out=_stores_inputs_first(model),
        ),
    )


def _inject(encoder: Encoder, config: Any) -> frozenset[str]:
    """Put adapters in, freeze all else, and name what trains."""
    from peft import inject_adapter_in_model

    model = _model(encoder)
    try:
        inject_adapter_in_model(config, model)
    except ValueError as error:
        ends = sorted({n.rpartition(".")[2] for n, m in model.named_modules() if _is_linear(m)})
        raise ValueError(
            f"peft.target_modules: {error} The linear maps of this encoder "
            f"({model.config.model_type}) end in {', '.join(ends)}"
        ) from error
    return frozenset(name for name, p in encoder.named_parameters() if p.requires_grad)


def _peft(option: str) -> Any:
    try:
        import peft
    except ImportError as error:
        raise ValueError(NO_PEFT.format(option)) from error
    return peft


def _model(encoder: Encoder) -> Any:
    if encoder.model is None:
        raise ValueError(
            f"adapters go into a transformers model, which {type(encoder).__name__} does not have; "
            "use peft=none"
        )
    return encoder.model


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or _is_conv1d(module)


def _is_conv1d(module: nn.Module) -> bool:
    """Whether a linear map stores [D_in, D_out], as those of GPT-2 do."""
    return type(module).__name__ == "Conv1D"


def _stores_inputs_first(model: nn.Module) -> bool:
    return any(map(_is_conv1d, model.modules()))
