"""Rebuild the model of a run, and check that it predicts what the run recorded.

A sequences, B examples, T tokens, D width.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor

from isotrain.build import untrained_model
from isotrain.config.compose import config_of
from isotrain.encoders.transformer import TransformerEncoder
from isotrain.model.checkpoint import load_weights
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.runs.files import WEIGHTS_FILE, trained_run
from isotrain.runs.predictions import read_predictions
from isotrain.tasks.base import Task
from isotrain.tasks.data.encoding import collate
from isotrain.tasks.data.perturbations import Changes, apply_changes
from isotrain.training.revision import source_of, task_of
from isotrain.types import Batch, ModelOutput

N_ROWS = 64  # dev examples that are compared
FLOAT32 = ("None", "32", "32-true", "64", "64-true")  # values of trainer.precision


@dataclass
class Rebuilt:
    """The model of a run in evaluation mode, and examples of its dev split."""

    folder: Path  # of the run
    result: dict[str, Any]  # its record
    cfg: DictConfig
    model: IsotropicModel
    encoder: TransformerEncoder  # of the model
    task: Task
    texts: list[tuple[list[str], ...]]  # the task's tokenizer input, one entry per sequence
    max_length: int
    batch: Batch
    single: ModelOutput  # in float32
    double: ModelOutput
    states: tuple[Tensor, Tensor]  # encoder output [A, T, D], in float32 and in float64


class _Listening:
    """A tokenizer wrapper that records its inputs."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self.calls = tokenizer, list[tuple[Any, dict[str, Any]]]()

    def __call__(self, *texts: list[str], **options: Any) -> Any:
        self.calls.append((texts, options))
        return self._tokenizer(*texts, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


@torch.no_grad()
def rebuild(folder: Path) -> Rebuilt:
    """Rebuild the model of a run with its final weights, and 64 of the dev examples it scored.

    Adapters (peft) are not merged yet; `merge_adapters` does so.

    Raises:
        ValueError: no finished training run, a target that a record may not name, lost data or
            weights, weights of another model, or an encoder that is no transformers model.
    """
    result = trained_run(folder)
    cfg = config_of(result)
    task = task_of(cfg)
    rows = dev_rows(cfg, task)  # the head needs the number of classes
    predictions = read_predictions(folder, "dev")
    scored = range(len(rows)) if predictions is None else sorted(predictions.index.tolist())
    numbers = [i for i in scored if i < len(rows)][:N_ROWS]
    model = model_of(cfg, task)
    load_weights(model, folder / WEIGHTS_FILE, "model.")
    encoder: Any = model.encoder
    tokenizer = encoder.tokenizer
    listener = _Listening(tokenizer)
    examples = task.encode([rows[i] for i in numbers], listener)
    examples = [replace(example, index=numbers[example.index]) for example in examples]
    batch = collate(examples, tokenizer.pad_token_id)
    # texts that were cut are tokenised again, whole
    texts = [texts for texts, options in listener.calls if options.get("max_length") != sys.maxsize]
    max_length = listener.calls[0][1].get("max_length") or tokenizer.model_max_length
    max_length = min(max_length, encoder.max_positions or max_length)
    single, single_ATD = model(batch), encoder(batch, {}).last
    model.double()
    double, double_ATD = model(batch), encoder(batch, {}).last
    model.float()  # weights are unchanged: float64 holds them exactly
    states = single_ATD, double_ATD
    return Rebuilt(
        folder, result, cfg, model, encoder, task, texts, max_length, batch, single, double, states
    )


@torch.no_grad()
def merge_adapters(model: IsotropicModel) -> None:
    """Merge peft adapters into the weights of the encoder, in place."""
    for name, part in list(model.encoder.named_modules()):
        if hasattr(part, "get_base_layer") and hasattr(part, "merge"):
            part.merge()
            model.encoder.set_submodule(name, part.get_base_layer())


def model_of(cfg: DictConfig, task: Task) -> IsotropicModel:
    """Build the model of a run, with the initial weights of its encoder.

    Raises:
        ValueError: the encoder is no transformers model with a fast tokenizer.
    """
    model = untrained_model(cfg, task)
    encoder = model.encoder
    if not isinstance(encoder, TransformerEncoder) or not encoder.tokenizer.is_fast:
        raise ValueError(
            "an export needs a model of transformers and its fast tokenizer, which "
            f"{type(encoder).__name__} does not have; use an encoder such as encoder=huggingface"
        )
    return model.eval()


def dev_rows(cfg: DictConfig, task: Task) -> list[dict[str, Any]]:
    """The dev examples, as evaluated by the run."""
    changes = Changes(hypothesis_only=cfg.data.hypothesis_only)  # of all, the one of dev
    rows, *_ = apply_changes(task.load(source_of(cfg)), task, changes, cfg.seed)
    return rows["dev"]


def agreement(rebuilt: Rebuilt) -> str:
    """The number of examples whose predictions agree with `predictions/dev.csv`, as text.

    Classes must be equal, and scores within a relative tolerance. For a run on a CPU in float32
    only the order of sums differs: the tolerance is 0.001, and all must match. For another device
    or precision it is 0.02, or 0.1 in half precision, and nine in ten must match.

    Raises:
        ValueError: fewer match.
    """
    predictions = read_predictions(rebuilt.folder, "dev")
    if predictions is None:
        return "the run kept no predictions of these examples"
    is_half = str(rebuilt.cfg.trainer.get("precision")) not in FLOAT32
    is_exact = rebuilt.result.get("device") == "cpu" and not is_half
    tolerance, min_share = (1e-3, 1.0) if is_exact else (0.1 if is_half else 0.02, 0.9)
    ref = dict(zip(predictions.index.tolist(), predictions.prediction.tolist(), strict=True))
    predicted = rebuilt.task.predictions(rebuilt.single.logits).tolist()
    pairs = zip(rebuilt.batch.index.tolist(), predicted, strict=True)
    matches = [abs(x - ref[i]) <= tolerance * max(1.0, abs(ref[i])) for i, x in pairs if i in ref]
    text = f"{sum(matches)} of {len(matches)} examples are predicted as the run recorded them"
    if sum(matches) < min_share * len(matches):
        raise ValueError(
            f"{rebuilt.folder / WEIGHTS_FILE} must predict what predictions/dev.csv has, and "
            f"{text}; these files are not of one run: give its command with rerun=true"
        )
    return text
