"""An encoder that starts where a finished run ended."""

from __future__ import annotations

from pathlib import Path

import torch

from isotrain.encoders.base import Encoder

ENCODER = "model.encoder."  # where a checkpoint of a run has the encoder's weights


def load_start(encoder: Encoder, file: Path) -> None:
    """Give `encoder` the weights that a run's checkpoint has for it: all of them, and no others.

    Head, isotropy layers and objectives stay as they are.

    Raises:
        ValueError: the file cannot be read, or its weights do not fit in name and shape.
    """
    try:
        state = torch.load(file, map_location="cpu", weights_only=True, mmap=True)["state_dict"]
    except Exception as error:  # whatever a file that is no checkpoint makes torch raise
        raise ValueError(f"init_from: {file} cannot be read as a checkpoint: {error}") from error
    own = {k.removeprefix(ENCODER): x for k, x in state.items() if k.startswith(ENCODER)}
    try:
        encoder.load_state_dict(own)
    except RuntimeError as error:
        raise ValueError(
            f"init_from: the weights of {file} do not fit this encoder; start from a run of the "
            f"same encoder: {error}"
        ) from error
