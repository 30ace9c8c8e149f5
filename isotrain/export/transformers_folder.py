"""A folder for plain transformers: a classifier where the run is one, else the encoder.

B rows, P vectors per row, T tokens, D width, C outputs.
"""

from __future__ import annotations

from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from isotrain.export.affine import Affine, NotAffineError
from isotrain.export.classifier import Head, build_classifier, head_for
from isotrain.export.errors import CannotExportError, RoundTripError
from isotrain.export.folding import folded, head_map, layer_sites
from isotrain.export.rebuilt import Rebuilt
from isotrain.export.round_trip import Differences, differences
from isotrain.export.tokenizer import write_tokenizer

WAYS = (
    "layers like isotropy=all_but_the_top and zca are one map, and format=sentence-transformers "
    "(task.form=bi) keeps this one as it is"
)


class Classifier(NamedTuple):
    """The head that is written, and the map from the state it reads to the logits."""

    head: Head
    affine: Affine


class Plan(NamedTuple):
    """What a folder is going to hold."""

    classifier: Classifier | None  # None: the encoder alone
    reason: str  # why there is no classifier


def plan_transformers(rebuilt: Rebuilt) -> Plan:
    """A classifier, or the encoder alone and why.

    Raises:
        CannotExportError: neither: a layer at tokens belongs to what the encoder gives.
    """
    try:
        return Plan(_classifier(rebuilt), "")
    except NotAffineError as error:
        reason = str(error)
    if "tokens" in layer_sites(rebuilt):
        raise CannotExportError(
            f"format=transformers has no place for this run: {reason}; and the encoder alone would "
            "lack the layer at tokens; train with site=[pooled], or with task.form=bi for "
            "--format sentence-transformers"
        )
    if [state.ndim for state in rebuilt.states] != [3, 3]:  # once in each precision
        raise CannotExportError(
            f"format=transformers has no place for this run: {reason}; and the encoder alone must "
            "call its network once a batch, for states [batch, tokens, width], which this one does "
            "not; use an encoder such as encoder=huggingface"
        )
    return Plan(None, reason)


def write_transformers(folder: Path, rebuilt: Rebuilt, plan: Plan) -> None:
    """Weights, configuration and tokenizer."""
    model, tokenizer = rebuilt.network, deepcopy(rebuilt.tokenizer)
    if plan.classifier is not None:
        names = output_names(rebuilt)
        model, tokenizer = build_classifier(model, *plan.classifier, names, tokenizer)
    model.save_pretrained(folder)
    write_tokenizer(folder, tokenizer, rebuilt)


@torch.no_grad()
def check_transformers(folder: Path, rebuilt: Rebuilt, plan: Plan) -> Differences:
    """How far what is loaded from the folder is from the run, from text to the last number.

    Of a classifier the logits are compared, of an encoder the states of all real tokens, as the
    encoder of the run gave them before anything was merged into it.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder)
    kind: Any = AutoModel if plan.classifier is None else AutoModelForSequenceClassification
    options = {"dtype": torch.float32, "local_files_only": True}
    model = kind.from_pretrained(folder, **options).eval()
    if plan.classifier is not None:
        inputs = tokenizer(*rebuilt.texts[0], padding=True, truncation=True, return_tensors="pt")
        found_32 = model(**inputs).logits
        return differences(
            (rebuilt.single.logits, found_32),
            (rebuilt.double.logits, model.double()(**inputs).logits),
        )
    columns = [list(chain(*parts)) for parts in zip(*rebuilt.texts, strict=True)]
    inputs = tokenizer(*columns, padding=True, truncation=True, return_tensors="pt")
    if not torch.equal(inputs["input_ids"], rebuilt.batch.input_ids):
        raise RoundTripError("the tokenizer that was written gives other token ids")
    real_AT = rebuilt.batch.attention_mask.bool()
    of_single_ATD, of_double_ATD = rebuilt.states  # `plan_transformers` saw two
    found_ATD = model(**inputs).last_hidden_state
    wide_ATD = model.double()(**inputs).last_hidden_state
    return differences(
        (of_single_ATD[real_AT], found_ATD[real_AT]), (of_double_ATD[real_AT], wide_ATD[real_AT])
    )


def output_names(rebuilt: Rebuilt) -> list[str]:
    """The classes by number; `score` for a single output."""
    n_outputs = rebuilt.double.logits.shape[1]
    if n_outputs == 1:
        return ["score"]
    classes = rebuilt.task.data_set.classes
    if len(classes) != n_outputs:
        return [f"LABEL_{c}" for c in range(n_outputs)]
    return [str(name) for name in classes]


def _classifier(rebuilt: Rebuilt) -> Classifier:
    model, pooled_BPD = rebuilt.model, rebuilt.double.pooled
    if rebuilt.task.form != "cross":
        raise NotAffineError("a classifier reads one sequence, and form=bi compares two")
    if pooled_BPD.shape[1] != 1:
        raise NotAffineError(
            f"a classifier reads one vector, and the pooling gives {pooled_BPD.shape[1]}"
        )
    n_outputs = rebuilt.double.logits.shape[1]
    kind, width = rebuilt.network.config.model_type, model.encoder.width
    head = head_for(kind, model.pooling.reads, width, n_outputs)
    try:
        layers = folded(rebuilt)
    except NotAffineError as error:
        raise NotAffineError(f"{error}; {WAYS}") from error
    affine = layers.then(head_map(rebuilt))
    head.check(rebuilt.network, affine)
    return Classifier(head, affine)
