"""The folder an export goes to: judged first, filled beside itself, put in place at the end."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isotrain.export.errors import CannotExportError

MARK = "isotrain_export.json"  # in every folder that an export made


def check_target(folder: Path) -> None:
    """Refuse a folder that has something else in it than an earlier export.

    Raises:
        CannotExportError: such a folder, a file in its place, or no right to write there.
    """
    if folder.exists() and not folder.is_dir():
        raise CannotExportError(f"an export is a folder, and {folder} is a file; give another --to")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise CannotExportError(
            f"a folder that is replaced must be an earlier export, and {folder} has other files "
            f"in it (no {MARK}); give another --to, or clear it"
        )
    existing = next(p for p in (folder.parent, *folder.absolute().parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise CannotExportError(f"cannot write to {existing}; give another --to")


@contextmanager
def filling(folder: Path, mark: dict[str, Any]) -> Iterator[Path]:
    """An empty folder that takes the place of `folder` at the end, and is gone if the block fails.

    It stands beside `folder` meanwhile. An earlier export goes when the new one is in place, and
    comes back if it cannot be put there.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    name = f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}"
    part, old = folder.with_name(f"{name}.part"), folder.with_name(f"{name}.old")
    part.mkdir()
    try:
        yield part
        (part / MARK).write_text(json.dumps(mark, indent=2) + "\n", encoding="utf-8")
        if folder.exists():
            os.replace(folder, old)
        try:
            os.replace(part, folder)
        except OSError:
            if old.exists():
                os.replace(old, folder)
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
