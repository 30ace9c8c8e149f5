"""The content of the files and folders that a configuration names, as digests. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from isotrain.runs.files import sha256_of

DIGITS = 12


def given_files(node: Any) -> dict[str, str]:
    """Twelve hex digits of the SHA-256 of each file that a value of `node` names, by its path.

    Of a folder, such as that of an encoder, every file in it counts, those of its folders do not.

    >>> given_files({"encoder": {"name": "google-bert/bert-base-uncased", "width": 3}})
    {}
    """
    if isinstance(node, str):
        files = _files(Path(node).expanduser()) if node else []  # empty: the working folder
        return {str(file): sha256_of(file)[:DIGITS] for file in files}
    parts = node.values() if isinstance(node, Mapping) else node
    found: dict[str, str] = {}
    for part in parts if isinstance(parts, Iterable) else ():
        found |= given_files(part)
    return found


def _files(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            return sorted(file for file in path.iterdir() if file.is_file())
        return [path] if path.is_file() else []
    except (OSError, ValueError):  # a text that is no path
        return []
