"""Classifiers of transformers whose logits are a given affine map of the pooled vector.

h `[D]` is the state that a model's own head reads, z = W h + b `[C]` are the logits it shall give.
The heads differ, and none of them is W h + b as it stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification

from isotrain.export.affine import Affine, NotAffineError
from isotrain.export.errors import RoundTripError

LINEAR = 2.0**-13  # |x| up to here: tanh(x) is x to 2^-26/3 = 5e-9 of it
TOLD = 3e-7  # what a bias may be off by, of the largest one or of 1


@torch.no_grad()
def put_behind_tanh(dense: nn.Linear, out: nn.Linear, affine: Affine, norm: nn.LayerNorm) -> None:
    """Write z = W h + b into a head out(tanh(dense(h))): dense has εW and εb, out has 1/ε.

    **Truncation.** tanh(x) = x − x³/3 + …, so that a logit is off by |z|·(εz)²/3 at most. The norm
    that gives h bounds z for every input there can be: h = γ∘n + β with ‖n‖ ≤ √D, hence
    |z_c| ≤ |W_c·β + b_c| + √D·‖W_c∘γ‖. ε is chosen for that bound: |εz| ≤ 2^-13, and a logit is
    off by 5e-9 of itself.

    **Rounding.** ε is a power of two, so the scaling is exact in binary arithmetic: dense gives
    ε times what W h + b would give, bit by bit, and 1/ε undoes it. Floating-point numbers have the
    same relative precision at every size, and so a small ε costs nothing; in float32 tanh(x)
    rounds to x here (the difference is below half a unit in the last place). What remains is the
    rounding of W and b to float32, as in any head. It would cost in float16, whose numbers end at
    6e-8: load such a folder in float32 or bfloat16.

    The D − C other rows are zero.
    """
    bound = float(_bound_C(affine, norm).max())
    epsilon = 2.0 ** math.floor(math.log2(LINEAR / max(bound, LINEAR)))
    n = len(affine.bias_E)
    _zero(dense, out)
    dense.weight[:n] = (epsilon * affine.matrix_DE.T).float()
    dense.bias[:n] = (epsilon * affine.bias_E).float()
    out.weight[:, :n] = torch.eye(n) / epsilon


@torch.no_grad()
def put_behind_relu(dense: nn.Linear, out: nn.Linear, affine: Affine) -> None:
    """Write z = W h + b into a head out(relu(dense(h))): relu(z) − relu(−z) = z, exactly."""
    n = len(affine.bias_E)
    _zero(dense, out)
    dense.weight[: 2 * n] = torch.cat([affine.matrix_DE.T, -affine.matrix_DE.T]).float()
    dense.bias[: 2 * n] = torch.cat([affine.bias_E, -affine.bias_E]).float()
    out.weight[:, : 2 * n] = torch.cat([torch.eye(n), -torch.eye(n)], dim=1)


@torch.no_grad()
def put_without_bias(out: nn.Linear, affine: Affine, norm: nn.LayerNorm) -> None:
    """Write z = W h + b into a head out(h) that has no bias: W, and a shift of the norm behind h.

    h = γ∘n + β, and with β + δ in place of β the head gives W h + W δ. The last hidden state of the
    folder is shifted by δ, the blocks are not.
    """
    out.weight.copy_(affine.matrix_DE.T.float())
    norm.bias.copy_(shifted(affine, norm))


@torch.no_grad()
def shifted(affine: Affine, norm: nn.LayerNorm) -> Tensor:
    """β + δ in float32, `[D]`: δ = Wᵀ(WWᵀ)⁻¹b is the smallest with W δ = b.

    Raises:
        NotAffineError: there is none, since rows of W depend on each other, or they do so nearly
            and rounding a large δ costs more than `TOLD` of the logits.
    """
    weight_CD, before_D = affine.matrix_DE.T, norm.bias.double()
    after_D: Tensor = (before_D + torch.linalg.pinv(weight_CD) @ affine.bias_E).float()
    left = float((weight_CD @ (after_D.double() - before_D) - affine.bias_E).abs().max())
    if left > TOLD * max(1.0, float(affine.bias_E.abs().max())):
        raise NotAffineError(
            "the head of GPT-2 has no bias, and weights that depend on each other cannot stand in "
            f"for it (a bias is off by {left:.2g})"
        )
    return after_D


def _put_bert(model: Any, affine: Affine) -> None:
    base = model.bert
    norm = base.encoder.layer[-1].output.LayerNorm
    put_behind_tanh(base.pooler.dense, model.classifier, affine, norm)


def _put_roberta(model: Any, affine: Affine) -> None:
    norm = model.base_model.encoder.layer[-1].output.LayerNorm
    put_behind_tanh(model.classifier.dense, model.classifier.out_proj, affine, norm)


def _put_distilbert(model: Any, affine: Affine) -> None:
    put_behind_relu(model.pre_classifier, model.classifier, affine)


def _put_gpt2(model: Any, affine: Affine) -> None:
    put_without_bias(model.score, affine, model.transformer.ln_f)


class Head(NamedTuple):
    """The head of an architecture."""

    reads: str  # first | last token
    most: float  # outputs that it has room for, over D
    put: Callable[[Any, Affine], None]
    check: Callable[[Any, Affine], object] = lambda base, affine: None  # a NotAffineError


HEADS = {  # by config.model_type
    "bert": Head("first", 1, _put_bert),
    "roberta": Head("first", 1, _put_roberta),
    "xlm-roberta": Head("first", 1, _put_roberta),
    "camembert": Head("first", 1, _put_roberta),
    "distilbert": Head("first", 0.5, _put_distilbert),
    "gpt2": Head("last", 1, _put_gpt2, lambda base, affine: shifted(affine, base.ln_f)),
}


def head_for(model_type: str, reads: str, width: int, n_outputs: int) -> Head:
    """The head that a run's logits can be written into.

    Raises:
        NotAffineError: there is none; why.
    """
    if model_type not in HEADS:
        raise NotAffineError(
            f"no head is known for {model_type}; there are those of {', '.join(HEADS)}"
        )
    head = HEADS[model_type]
    if reads != head.reads:
        raise NotAffineError(
            f"the head of {model_type} reads the {head.reads} token, and the pooling of this run "
            f"reads {'the target words' if reads == 'spans' else f'{reads} tokens'}"
        )
    if n_outputs > head.most * width:
        raise NotAffineError(
            f"the head of {model_type} has room for {int(head.most * width)} outputs at D = "
            f"{width}, and the task has {n_outputs}"
        )
    return head


def build_classifier(
    network: Any, head: Head, affine: Affine, names: Sequence[str], tokenizer: Any
) -> tuple[Any, Any]:
    """A classifier with the weights of an encoder and the given map as head, and its tokenizer.

    One output is a regression, several are classes. Where the token that pads is the one that
    ends a sentence (GPT-2), a pad token of its own is added: the head finds the last token as the
    last one that is no pad.

    Raises:
        RoundTripError: the encoder is a variant with other weights.
    """
    config = deepcopy(network.config)
    config.num_labels = len(names)
    config.id2label = dict(enumerate(names))
    config.label2id = {name: number for number, name in enumerate(names)}
    config.problem_type = "regression" if len(names) == 1 else "single_label_classification"
    auto: Any = AutoModelForSequenceClassification
    model = auto.from_config(config, dtype=torch.float32).eval()
    missing, unexpected = model.base_model.load_state_dict(network.state_dict(), strict=False)
    if odd := [*unexpected, *(name for name in missing if not name.startswith("pooler."))]:
        raise RoundTripError(
            f"the encoder must have the weights of {type(model.base_model).__name__}, and "
            f"{', '.join(odd[:3])} {'is' if len(odd) == 1 else 'are'} in one of both alone"
        )
    head.put(model, affine)
    tokenizer = deepcopy(tokenizer)
    if tokenizer("a")["input_ids"][-1] == tokenizer.pad_token_id:
        tokenizer.add_special_tokens({"pad_token": "<|pad|>"})
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        with torch.no_grad():
            model.get_input_embeddings().weight[tokenizer.pad_token_id] = 0.0
    model.config.pad_token_id = tokenizer.pad_token_id
    return model, tokenizer


def _bound_C(affine: Affine, norm: nn.LayerNorm) -> Tensor:
    """The largest |z_c| that any input gives."""
    gain_D, offset_D = norm.weight.detach().double(), norm.bias.detach().double()
    at_centre_C = affine(offset_D[None])[0].abs()
    spread_C: Tensor = (affine.matrix_DE * gain_D[:, None]).norm(dim=0)
    return at_centre_C + math.sqrt(len(gain_D)) * spread_C


def _zero(*maps: nn.Linear) -> None:
    for linear in maps:
        nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
