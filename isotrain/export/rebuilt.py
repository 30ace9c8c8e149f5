"""Rebuild the model of a run, with some of its dev examples as text and as a batch.

B examples, P vectors per example, D width, C outputs.
"""

from dataclasses import dataclass
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from isotrain.build import isotropic_model
from isotrain.config.parts import make
from isotrain.encoders.base import Encoder
from isotrain.export.formats import CannotExportError, refusing
from isotrain.export.source_run import SourceRun
from isotrain.model.checkpoint import load_weights
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.tasks.base import Task
from isotrain.tasks.data.perturbations import Changes, apply_changes
from isotrain.tasks.data.sources import Source
from isotrain.training.data import collate
from isotrain.training.revision import data_revision
from isotrain.types import Batch, ModelOutput, Pooling

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
    note: str = ""  # that the layers are part of the encoder, if they are

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
        CannotExportError: data or weights have changed, the encoder is not a transformers model,
            or parts cannot be built or run.
    """
    cfg = run.cfg
    with refusing(
        f"the model of {run.folder} must be made again, which failed; encoder, data and task must "
        "be as they were when it ran"
    ):
        recorded = str(run.result.get("data"))
        now = data_revision(cfg)
        if not f"{recorded}; ".startswith(f"{now}; "):  # `init_from` and similar follow it
            raise CannotExportError(
                f"the run was finished on {recorded}, which is {now} now; put the data back: what "
                "is exported is compared with the run on its dev examples"
            )
        task: Task = make(cfg.task, Task)
        model = model_of(cfg, task)
        load_weights(model, run.weights, "model.")
        tokenizer = model.encoder.tokenizer
        heard = _Listening(tokenizer)
        rows = dev_rows(cfg, task)
        batch = collate(task.encode(rows, heard), tokenizer.pad_token_id)
    columns = [column for texts in heard.texts for column in texts]
    if len(heard.texts) != batch.n_sequences or not all(
        isinstance(column, list) and len(column) == len(rows) for column in columns
    ):
        raise CannotExportError(
            f"task={task.name} must give its tokenizer lists with the texts of all examples, once "
            f"for each of {batch.n_sequences} sequences, to be compared from text; it made "
            f"{len(heard.texts)} calls for {len(rows)} examples; encode as "
            "isotrain.tasks.data.encoding does"
        )
    longest = heard.options.get("max_length") or tokenizer.model_max_length
    longest = min(longest, model.encoder.max_positions or longest)
    with refusing(
        "the model of a run is tried in float32 and in float64, which failed; a layer or head of "
        "your own must keep the dtype of what it is given"
    ):
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
    """Build the model of a run, with the initial weights of its encoder."""
    pooling: Pooling = make(cfg.pooling)
    encoder: Encoder = make(cfg.encoder, Encoder)
    known = encoder.model is not None
    if not known or not hasattr(encoder.tokenizer, "backend_tokenizer"):
        raise CannotExportError(
            "an export needs a model of transformers and its fast tokenizer, which "
            f"{type(encoder).__name__} has not; use an encoder such as encoder=huggingface"
        )
    model = isotropic_model(cfg, task, pooling, encoder)
    make(cfg.peft, encoder=encoder)
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
    source: Source = make(cfg.source, Source)
    changes = Changes(hypothesis_only=cfg.data.hypothesis_only)  # of all, the one of dev
    rows, *_ = apply_changes(task.load(source), task, changes, cfg.seed)
    return rows["dev"][:N_ROWS]
