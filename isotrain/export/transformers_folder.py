"""Write a transformers folder: the encoder and, for classification, the head.

B examples, T tokens, D width, C outputs.
"""

import inspect
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from isotrain.export.folding import Affine, NotAffineError, folded, head_map, layer_sites
from isotrain.export.formats import (
    CannotExportError,
    Differences,
    Format,
    RoundTripError,
    differences,
)
from isotrain.export.rebuilt import Rebuilt
from isotrain.model.pooling import ClsPooling, LastPooling, MeanPooling

HEAD = "head.safetensors"  # weight [C, D] and bias [C], of the pooled embedding
POOLED: dict[type, tuple[str, str]] = {  # sentence-transformers' name; code for the model card
    ClsPooling: ("cls", "states[:, 0]"),
    LastPooling: (
        "lasttoken",
        'states[range(len(states)), inputs["attention_mask"].sum(1) - 1]',
    ),
    MeanPooling: (
        "mean",
        '(states * (mask := inputs["attention_mask"][..., None])).sum(1) / mask.sum(1)',
    ),
}
WAYS = (
    "layers like isotropy=all_but_the_top and zca are one map, and format=sentence-transformers "
    "(task.form=bi) keeps this one as it is"
)


def transformers_format(rebuilt: Rebuilt) -> Format:
    """The format of encoder and head, or of the encoder alone and why.

    Raises:
        CannotExportError: neither: a layer at tokens belongs to what the encoder gives.
    """
    head, what = None, f"encoder and head{rebuilt.note}"
    try:
        head = linear_head(rebuilt)
        if layer_sites(rebuilt):
            what += ", the isotropy layer folded into the head"
    except NotAffineError as error:
        if "tokens" in layer_sites(rebuilt):
            raise CannotExportError(
                f"format=transformers cannot hold this run: {error}; and the encoder alone would "
                "lack the layer at tokens; train with site=[pooled], or with task.form=bi for "
                "--format sentence-transformers"
            ) from error
        what = f"the encoder alone{rebuilt.note}, without {_absent(rebuilt)}: {error}"
    return Format(
        "transformers",
        "feature-extraction",
        what,
        lambda folder: usage(folder, rebuilt, head),
        lambda folder: write_transformers(folder, rebuilt, head),
        lambda folder: check_transformers(folder, rebuilt, head),
    )


def linear_head(rebuilt: Rebuilt) -> Affine:
    """The map from the pooled embedding, before any isotropy layer, to the logits.

    Raises:
        NotAffineError: there is none, and why.
    """
    if rebuilt.task.form != "cross":
        raise NotAffineError("the head of form=bi compares two embeddings")
    if type(rebuilt.model.pooling) not in POOLED:
        raise NotAffineError("the pooling reads target words, which no tokenizer marks")
    try:
        return folded(rebuilt).then(head_map(rebuilt))
    except NotAffineError as error:
        raise NotAffineError(f"{error}; {WAYS}") from error


def write_transformers(folder: Path, rebuilt: Rebuilt, head: Affine | None) -> None:
    """Write weights, configuration and tokenizer."""
    rebuilt.network.save_pretrained(folder)
    write_tokenizer(folder, rebuilt)
    if head is not None:
        weight_CD, bias_C = head.matrix_DE.T.contiguous(), head.bias_E
        save_file({"weight": weight_CD.float(), "bias": bias_C.float()}, folder / HEAD)


@torch.no_grad()
def check_transformers(folder: Path, rebuilt: Rebuilt, head: Affine | None) -> Differences:
    """Differences of the reloaded folder from the run, from text to final output.

    Logits are compared, or without a head the states of all real tokens, as the encoder gave them
    before adapters were merged into it, and shifted where it has absorbed the layer.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    model: Any = AutoModel.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True, trust_remote_code=False
    )
    columns = [
        [text for part in parts for text in part] for parts in zip(*rebuilt.texts, strict=True)
    ]
    inputs = tokenizer(*columns, padding=True, truncation=True, return_tensors="pt")
    if not torch.equal(inputs["input_ids"], rebuilt.batch.input_ids):
        raise RoundTripError("the tokenizer that was written gives other token ids")
    single_BTD = model.eval()(**inputs).last_hidden_state
    double_BTD = model.double()(**inputs).last_hidden_state
    if head is None:
        real_BT = rebuilt.batch.attention_mask.bool()
        (run_32, run_64), (own_32, own_64) = rebuilt.states, (single_BTD, double_BTD)
        return differences((run_32[real_BT], own_32[real_BT]), (run_64[real_BT], own_64[real_BT]))
    written = load_file(folder / HEAD)

    def logits(states_BTD: torch.Tensor) -> torch.Tensor:
        weight_CD, bias_C = (written[name].to(states_BTD) for name in ("weight", "bias"))
        return rebuilt.model.pooling(states_BTD, rebuilt.batch)[:, 0] @ weight_CD.T + bias_C

    return differences(
        (rebuilt.single.logits, logits(single_BTD)), (rebuilt.double.logits, logits(double_BTD))
    )


def usage(folder: Path, rebuilt: Rebuilt, head: Affine | None) -> str:
    """Example code that loads the folder and scores the first dev example."""
    bare = ""
    if "add_pooling_layer" in inspect.signature(type(rebuilt.network).__init__).parameters:
        bare = ", add_pooling_layer=False"
    texts = ", ".join(repr(column[:1]) for column in rebuilt.texts[0])
    lines = [
        "import torch",
        *["from safetensors.torch import load_file"] * (head is not None),
        "from transformers import AutoModel, AutoTokenizer",
        "",
        f"folder = {str(folder)!r}",
        f"texts = ({texts},)",
        "tokenizer = AutoTokenizer.from_pretrained(folder)",
        f"encoder = AutoModel.from_pretrained(folder{bare}).eval()",
        'inputs = tokenizer(*texts, truncation=True, padding=True, return_tensors="pt")',
        "with torch.no_grad():",
        "    states = encoder(**inputs).last_hidden_state  # [texts, tokens, width]",
    ]
    if head is None:
        lines.append("print(states.shape)")
        note = f"The scores below are those of the run, whose {_absent(rebuilt)} are not here."
    else:
        lines += [
            f'head = load_file(f"{{folder}}/{HEAD}")',
            f"pooled = {POOLED[type(rebuilt.model.pooling)][1]}",
            'logits = pooled @ head["weight"].T + head["bias"]',
            f"print(logits)  # {', '.join(output_names(rebuilt))}",
        ]
        note = "Texts are prepared as the task prepares them."
    code = "\n".join(lines)
    return f"```python\n{code}\n```\n\n{note}"


def _absent(rebuilt: Rebuilt) -> str:
    """What a folder of the encoder alone lacks."""
    return "pooling, isotropy layer and head" if layer_sites(rebuilt) else "pooling and head"


def output_names(rebuilt: Rebuilt) -> list[str]:
    """Class names by index, if the task has them; `score` for a single output."""
    n_outputs = rebuilt.double.logits.shape[1]
    if n_outputs == 1:
        return ["score"]
    classes = rebuilt.task.data_set.classes
    return list(map(str, classes if len(classes) == n_outputs else range(n_outputs)))


def write_tokenizer(folder: Path, rebuilt: Rebuilt) -> None:
    """Write a tokenizer that truncates as the run did and pads on the right.

    It gives segments (`token_type_ids`) where the encoder of the run was given them, and nowhere
    else: a model with one table for words and segments would take them for words.
    """
    tokenizer = deepcopy(rebuilt.model.encoder.tokenizer)
    segments = ["token_type_ids"] if rebuilt.takes_segments else []
    kept = {
        "model_max_length": rebuilt.max_length,
        "model_input_names": ["input_ids", *segments, "attention_mask"],
        "padding_side": "right",
        "truncation_side": tokenizer.truncation_side,
    }
    for name, value in kept.items():
        setattr(tokenizer, name, value)
    tokenizer.init_kwargs |= kept  # what `save_pretrained` writes
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.save_pretrained(folder)
