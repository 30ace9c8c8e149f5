"""The content of the files and folders that a configuration names, as digests. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from isotrain.encoders.on_disk import sha256_of

DIGITS = 12


def given_files(node: Any) -> dict[str, str]:
    """Twelve hex digits of the SHA-256 of each file that a value of `node` names, by its path.

    Of a folder, such as that of an encoder, every file in it counts, those of its folders do not.

    >>> given_files({"encoder": {"name": "google-bert/bert-base-uncased", "width": 3}})
    {}
    """
    return {
        str(file): sha256_of(file)[:DIGITS]
        for text in _texts(node)
        for file in _files(Path(text).expanduser())
    }


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield from [node] if node else []  # an empty path is the working folder
    elif isinstance(node, Mapping):
        for value in node.values():
            yield from _texts(value)
    elif isinstance(node, Sequence):
        for value in node:
            yield from _texts(value)


def _files(path: Path) -> list[Path]:
    try:
        if path.is_dir():
            return sorted(file for file in path.iterdir() if file.is_file())
        return [path] if path.is_file() else []
    except (OSError, ValueError):  # a text that is no path
        return []
