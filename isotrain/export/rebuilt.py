"""A run's model made again, with some of its dev rows as text and as a batch.

B rows, P vectors per row, D width, C outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from omegaconf import DictConfig
from torch import Tensor, nn

from isotrain.build import data_revision, isotropic_model, made
from isotrain.export.errors import CannotExportError
from isotrain.export.source_run import SourceRun
from isotrain.model import IsotropicModel
from isotrain.predictions import read_predictions
from isotrain.tasks.changes import Changes, apply_changes
from isotrain.training.data import collate
from isotrain.types import Batch, Encoder, ModelOutput, Pooling, Source, Task

N_ROWS = 64  # of dev, that are compared
LEAST_SAME, NEAR = 0.9, 0.02  # share of predictions as recorded; scores this close are the same


@dataclass
class Rebuilt:
    """The model of a run in evaluation mode, and rows of its dev."""

    model: IsotropicModel
    task: Task
    tokenizer: Any
    texts: list[tuple[list[str], ...]]  # what the task tokenises, one entry a sequence
    max_length: int
    batch: Batch
    single: ModelOutput  # in float32
    double: ModelOutput
    n_same: int  # predictions that are as the run recorded them
    n_recorded: int

    @property
    def network(self) -> Any:
        """The encoder as transformers knows it."""
        encoder: Any = self.model.encoder
        return encoder.model


class _Listening:
    """A tokenizer that keeps what it was given."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.texts: list[tuple[list[str], ...]] = []
        self.options: dict[str, Any] = {}

    def __call__(self, *texts: list[str], **options: Any) -> Any:
        self.texts.append(texts)
        self.options = options
        return self._tokenizer(*texts, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


def rebuild(run: SourceRun) -> Rebuilt:
    """The model of a run with the weights that it ended with, and 64 rows of its dev.

    Adapters (peft) are still beside the weights; `merge_adapters` puts them in.

    Raises:
        CannotExportError: data or weights that are no longer what they were, an encoder that is
            none of transformers, or predictions that the run did not record.
    """
    cfg = run.cfg
    try:
        recorded = str(run.result.get("data")).partition("; init_from ")[0]
        if (now := data_revision(cfg)) != recorded:
            raise CannotExportError(
                f"the run was finished on {recorded}, which is {now} now; put the data back: what "
                "is exported is compared with the run on its dev rows"
            )
        task: Task = made(cfg.task)
        model = model_of(cfg, task)
        _load(model, run)
        tokenizer = model.encoder.tokenizer
        heard = _Listening(tokenizer)
        rows = dev_rows(cfg, task)
        batch = collate(task.encode(rows, heard), tokenizer.pad_token_id)
    except CannotExportError:
        raise
    except (ValueError, OSError) as error:
        raise CannotExportError(str(error)) from error
    if [len(texts[0]) for texts in heard.texts] != [len(rows)] * batch.n_sequences:
        raise CannotExportError(
            f"task={task.name} must give its tokenizer the texts of all rows, once for each of "
            f"{batch.n_sequences} sequences, to be compared from text; it made "
            f"{len(heard.texts)} calls"
        )
    with torch.no_grad():
        single = model(batch)
        double = model.double()(batch)
        model.float()  # the weights are what they were: float64 holds them exactly
    n_same, n_recorded = _agreement(run, task, batch, single.logits)
    longest = min(heard.options["max_length"], model.encoder.max_positions or 10**9)
    return Rebuilt(
        *(model, task, tokenizer, heard.texts, longest, batch, single, double, n_same, n_recorded)
    )


@torch.no_grad()
def merge_adapters(model: IsotropicModel) -> None:
    """Put what peft trained beside the weights of the encoder into them, in place."""
    for name, part in list(model.encoder.named_modules()):  # type: ignore[attr-defined]
        if hasattr(part, "get_base_layer") and hasattr(part, "merge"):
            part.merge()
            owner, _, child = name.rpartition(".")
            setattr(model.encoder.get_submodule(owner), child, part.get_base_layer())  # type: ignore[attr-defined]


def model_of(cfg: DictConfig, task: Task) -> IsotropicModel:
    """The model of a run, with the weights that its encoder is given."""
    pooling: Pooling = made(cfg.pooling)
    encoder: Encoder = made(cfg.encoder)
    if not hasattr(getattr(encoder, "model", None), "save_pretrained"):
        raise CannotExportError(
            f"an export needs a model of transformers, which {type(encoder).__name__} has not; "
            "use an encoder such as encoder=huggingface"
        )
    model = isotropic_model(cfg, task, pooling, encoder)
    made(cfg.peft, encoder=encoder)
    return model.eval()


def _load(model: nn.Module, run: SourceRun) -> None:
    try:
        state = torch.load(run.weights, map_location="cpu", weights_only=True)["state_dict"]
        own = {k.removeprefix("model."): x for k, x in state.items() if k.startswith("model.")}
        model.load_state_dict(own)
    except Exception as error:  # whatever a file that is no checkpoint makes torch raise
        raise CannotExportError(
            f"{run.weights} does not hold the weights of this run: {error}"
        ) from error


def dev_rows(cfg: DictConfig, task: Task) -> list[dict[str, Any]]:
    """The first rows of dev, as the run evaluated them."""
    source: Source = made(cfg.source)
    changes = Changes(**{f.name: cfg.data[f.name] for f in fields(Changes)})
    rows, *_ = apply_changes(task.load(source), task, changes, cfg.seed)
    return rows["dev"][:N_ROWS]


def _agreement(run: SourceRun, task: Task, batch: Batch, logits_BC: Tensor) -> tuple[int, int]:
    """How many predictions are those of `predictions/dev.csv`, and how many it has."""
    recorded = read_predictions(run.folder, "dev")
    if recorded is None:
        return 0, 0
    known = dict(zip(recorded.index.tolist(), recorded.prediction.tolist(), strict=True))
    pairs: Sequence[tuple[float, float]] = [
        (known[i], p)
        for i, p in zip(batch.index.tolist(), task.predictions(logits_BC).tolist(), strict=True)
        if i in known
    ]
    n_same = sum(abs(a - b) <= NEAR for a, b in pairs)
    if n_same < LEAST_SAME * len(pairs):
        raise CannotExportError(
            f"{run.weights} must predict what the run recorded, and {n_same} of {len(pairs)} rows "
            "are as in predictions/dev.csv; these files are not of one run: give its command with "
            "rerun=true"
        )
    return n_same, len(pairs)
