"""The measured encoder: as given, or before and after the fine-tuning of a run."""

from collections.abc import Iterator
from pathlib import Path

import torch
from omegaconf import DictConfig

from isotrain.analysis.start import result_of
from isotrain.config.parts import make
from isotrain.encoders.base import Encoder
from isotrain.encoders.start import load_start, reinit_blocks
from isotrain.geometry.rng import own_draws
from isotrain.runs.files import WEIGHTS_FILE, sha256_of

AS_GIVEN, BEFORE, AFTER = "as given", "before", "after"


class NoEncoder:
    """Placeholder if an analysis measures something other than an encoder."""

    source_id = "no encoder"
    max_positions = None


def device_of(asked: str) -> str:
    """`cpu` or `cuda`, for `device=auto | cpu | cuda`; a ValueError if CUDA is unavailable."""
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if asked == "cuda" and not torch.cuda.is_available():
        raise ValueError("device=cuda needs a CUDA device, and torch sees none; use device=cpu")
    return asked


def first_encoder(cfg: DictConfig, end: Path | None) -> Encoder:
    """The encoder in evaluation mode, on its device: as given, or as at the start of a run.

    What a run draws (`training.reinit_blocks`) is drawn with its seed, and its `init_from` loaded.
    `end` has the weights that the run ended with; None = no run.
    """
    if cfg.encoder is None:
        return NoEncoder()  # type: ignore[return-value]
    run = {} if end is None else result_of(cfg.from_run)
    config = run.get("config", {})
    torch.manual_seed(config.get("seed", cfg.seed))
    encoder: Encoder = make(cfg.encoder, Encoder)
    if earlier := run.get("init_from"):
        load_start(encoder, _earlier(earlier))
    if n_blocks := config.get("training", {}).get("reinit_blocks", 0):
        with own_draws(config["seed"], "reinit_blocks"):
            reinit_blocks(encoder, n_blocks)
    return encoder.eval().to(str(cfg.device))


def each_weights(encoder: Encoder, end: Path | None) -> Iterator[tuple[str, Encoder]]:
    """Name of the weights, and the encoder with them: as given, or before and after."""
    yield (AS_GIVEN if end is None else BEFORE), encoder
    if end is not None:
        load_start(encoder, end)
        yield AFTER, encoder


def _earlier(record: dict[str, str]) -> Path:
    """The checkpoint that a run started from, according to its record."""
    given = Path(record["path"]).expanduser()
    file = given / WEIGHTS_FILE if given.is_dir() else given
    if not file.is_file() or sha256_of(file) != record["sha256"]:
        raise ValueError(
            f"from_run: that run started from {record['path']}, which is gone, or is another by "
            "now; put it back, or measure a run that started from its encoder's own weights"
        )
    return file
