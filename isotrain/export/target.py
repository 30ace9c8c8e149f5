"""Target folder of an export: validated, written to a temporary sibling, then moved."""

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isotrain.export.formats import CannotExportError
from isotrain.runs.files import sha256_of

MARK = "isotrain_export.json"  # in every folder written by an export


def check_target(folder: Path) -> None:
    """Reject a folder with any content other than an unmodified earlier export.

    Raises:
        CannotExportError: such a folder, a file in its place, or no write permission.
    """
    if folder.exists() and not folder.is_dir():
        raise CannotExportError(f"an export is a folder, and {folder} is a file; give another --to")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise CannotExportError(
            f"a folder that is replaced must be an earlier export, and {folder} has other files "
            f"in it (no {MARK}); give another --to, or clear it"
        )
    if changed := _changed(folder):
        raise CannotExportError(
            f"an earlier export is replaced as it was written, and in {folder} "
            f"{', '.join(changed[:3])} {'was' if len(changed) == 1 else 'were'} added or changed "
            "since; give another --to, or delete that folder"
        )
    existing = next(p for p in (folder.parent, *folder.absolute().parents) if p.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise CannotExportError(f"cannot write to {existing}; give another --to")


@contextmanager
def filling(folder: Path, mark: dict[str, Any]) -> Iterator[Path]:
    """A temporary folder that replaces `folder` at the end, and is deleted if the block fails.

    It is a sibling of `folder` meanwhile. An earlier export is removed once the new one is in
    place, and restored if that fails.

    Raises:
        CannotExportError: something else was created at `folder` meanwhile.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    name = f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}"
    part, old = folder.with_name(f"{name}.part"), folder.with_name(f"{name}.old")
    part.mkdir()
    try:
        yield part
        mark = {**mark, "files": _digests(part)}
        (part / MARK).write_text(json.dumps(mark, indent=2) + "\n", encoding="utf-8")
        check_target(folder)  # minutes may have passed
        try:
            if folder.exists():
                os.replace(folder, old)
            os.replace(part, folder)
        except BaseException:  # Ctrl-C too
            if old.exists() and not folder.exists():
                os.replace(old, folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file in a folder except its mark, by relative path."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != MARK)
    return {str(file.relative_to(folder)): sha256_of(file) for file in files}


def _changed(folder: Path) -> list[str]:
    """Files of an earlier export that were modified, and files that it did not write."""
    if not (folder / MARK).is_file():
        return []
    try:
        written = json.loads((folder / MARK).read_text(encoding="utf-8"))["files"]
    except (ValueError, KeyError, TypeError):
        return [MARK]
    now = _digests(folder)
    return sorted(name for name in {**written, **now} if written.get(name) != now.get(name))
