"""Rebuild the model of a run, and check that it predicts what the run recorded.

B examples, P vectors per example, D width, C outputs.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from isotrain.build import untrained_model
from isotrain.export.source_run import SourceRun
from isotrain.model.checkpoint import load_weights
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.runs.predictions import read_predictions
from isotrain.tasks.base import Task
from isotrain.tasks.data.encoding import collate
from isotrain.tasks.data.perturbations import Changes, apply_changes
from isotrain.training.revision import source_of, task_of
from isotrain.types import Batch, ModelOutput

N_ROWS = 64  # of dev, to compare


@dataclass
class Rebuilt:
    """The model of a run in evaluation mode, and examples of its dev split."""

    model: IsotropicModel
    task: Task
    texts: list[tuple[list[str], ...]]  # the task's tokenizer input, one entry per sequence
    max_length: int
    batch: Batch
    single: ModelOutput  # in float32
    double: ModelOutput
    states: tuple[Tensor, Tensor]  # encoder output [A, T, D], in float32 and in float64
    takes_segments: bool  # whether the encoder receives token_type_ids

    @property
    def network(self) -> Any:
        """The underlying transformers model."""
        encoder: Any = self.model.encoder
        return encoder.model


class _Listening:
    """A tokenizer wrapper that records its inputs."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.texts: list[tuple[list[str], ...]] = []
        self.options: dict[str, Any] = {}

    def __call__(self, *texts: list[str], **options: Any) -> Any:
        named = [options[name] for name in ("text", "text_pair") if options.get(name) is not None]
        self.texts.append((*texts, *named))
        self.options = options
        return self._tokenizer(*texts, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def rebuild(run: SourceRun) -> Rebuilt:
    """Rebuild the model of a run with its final weights, and 64 of its dev examples.

    Adapters (peft) are not merged yet; `merge_adapters` does so.

    Raises:
        ValueError: weights of another model, or an encoder that is no transformers model.
    """
    cfg = run.cfg
    task = task_of(cfg)
    rows = dev_rows(cfg, task)  # the head needs the number of classes
    model = model_of(cfg, task)
    load_weights(model, run.weights, "model.")
    tokenizer = model.encoder.tokenizer
    heard = _Listening(tokenizer)
    batch = collate(task.encode(rows, heard), tokenizer.pad_token_id)
    longest = heard.options.get("max_length") or tokenizer.model_max_length
    longest = min(longest, model.encoder.max_positions or longest)
    return Rebuilt(model, task, heard.texts, longest, batch, *_tried(model, batch))


@torch.no_grad()
def merge_adapters(model: IsotropicModel) -> None:
    """Merge peft adapters into the weights of the encoder, in place."""
    for name, part in list(model.encoder.named_modules()):
        if hasattr(part, "get_base_layer") and hasattr(part, "merge"):
            part.merge()
            owner, _, child = name.rpartition(".")
            setattr(model.encoder.get_submodule(owner), child, part.get_base_layer())


def model_of(cfg: DictConfig, task: Task) -> IsotropicModel:
    """Build the model of a run, with the initial weights of its encoder.

    Raises:
        ValueError: the encoder is no transformers model with a fast tokenizer.
    """
    model = untrained_model(cfg, task)
    known = model.encoder.model is not None
    if not known or not hasattr(model.encoder.tokenizer, "backend_tokenizer"):
        raise ValueError(
            "an export needs a model of transformers and its fast tokenizer, which "
            f"{type(model.encoder).__name__} does not have; use an encoder such as "
            "encoder=huggingface"
        )
    return model.eval()


@torch.no_grad()
def _tried(
    model: IsotropicModel, batch: Batch
) -> tuple[ModelOutput, ModelOutput, tuple[Tensor, Tensor], bool]:
    """Outputs and encoder states in both precisions, and whether the encoder takes segments."""
    network: Any = model.encoder.model
    takes_segments = False

    def hear(module: nn.Module, args: Any, given: dict[str, Any]) -> None:
        nonlocal takes_segments
        takes_segments |= given.get("token_type_ids") is not None

    listening = network.register_forward_pre_hook(hear, with_kwargs=True)
    single, single_ATD = model(batch), model.encoder(batch, {}).last
    listening.remove()
    model.double()
    double, double_ATD = model(batch), model.encoder(batch, {}).last
    model.float()  # weights are unchanged: float64 holds them exactly
    return single, double, (single_ATD, double_ATD), takes_segments


def dev_rows(cfg: DictConfig, task: Task) -> list[dict[str, Any]]:
    """The first dev examples, as evaluated by the run."""
    changes = Changes(hypothesis_only=cfg.data.hypothesis_only)  # of all, the one of dev
    rows, *_ = apply_changes(task.load(source_of(cfg)), task, changes, cfg.seed)
    return rows["dev"][:N_ROWS]


FLOAT32 = ("None", "32", "32-true", "64", "64-true")  # values of trainer.precision


class Agreement(NamedTuple):
    """Number of examples whose prediction matches the record."""

    n_same: int
    n_rows: int  # 0 = the run kept no predictions of them

    def __str__(self) -> str:
        if not self.n_rows:
            return "the run kept no predictions of these examples"
        return f"{self.n_same} of {self.n_rows} examples are predicted as the run recorded them"


def agreement(run: SourceRun, rebuilt: Rebuilt) -> Agreement:
    """Count the examples whose prediction matches `predictions/dev.csv`.

    Classes must be equal, and scores within a tolerance of their size: 0.001 for a run on a CPU in
    float32, where only the order of sums differs, and all must match. For another device or
    precision it is 0.02, or 0.1 in half precision, and nine in ten must match.

    Raises:
        ValueError: fewer match.
    """
    recorded = read_predictions(run.folder, "dev")
    if recorded is None:
        return Agreement(0, 0)
    is_half = str(run.cfg.trainer.get("precision")) not in FLOAT32
    exact = run.result.get("device") == "cpu" and not is_half
    tolerance, least = (1e-3, 1.0) if exact else (0.1 if is_half else 0.02, 0.9)
    known = dict(zip(recorded.index.tolist(), recorded.prediction.tolist(), strict=True))
    own = dict(
        zip(
            rebuilt.batch.index.tolist(),
            rebuilt.task.predictions(rebuilt.single.logits).tolist(),
            strict=True,
        )
    )
    same = [
        abs(own[i] - known[i]) <= tolerance * max(1.0, abs(known[i])) for i in own if i in known
    ]
    found = Agreement(sum(same), len(same))
    if found.n_same < least * found.n_rows:
        raise ValueError(
            f"{run.weights} must predict what predictions/dev.csv has, and {found}; these files "
            "are not of one run: give its command with rerun=true"
        )
    return found
