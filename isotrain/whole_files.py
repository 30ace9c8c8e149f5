"""Files that are replaced in one step, so that nobody reads half of one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path, by_one: bool = False) -> Iterator[BinaryIO]:
    """An open file that takes the place of `path` when the block ends, and is gone if it fails.

    Until then it stands beside `path`, with a name of its own that ends in `.part`: of several
    processes that write one file the last stays, whole. What only one process at a time writes
    (`by_one`) has one such name, so that the next write takes up what a kill left of the last.

    Raises:
        OSError: the folder is not there, or has no room.
    """
    own = "" if by_one else f".{os.getpid()}-{secrets.token_hex(4)}"
    part = path.with_name(f"{path.name}{own}.part")
    try:
        with part.open("wb") as file:
            yield file
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a file in one step."""
    with replacing(path) as file:
        file.write(content)


def replace_text(path: Path, text: str) -> None:
    r"""Write a text file, in UTF-8 and with `\n` as it stands, in one step.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     replace_text(Path(folder) / "a.txt", "one\n")
    ...     [(file.name, file.read_text("utf-8")) for file in Path(folder).iterdir()]
    [('a.txt', 'one\n')]
    """
    replace_bytes(path, text.encode("utf-8"))
