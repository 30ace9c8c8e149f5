"""The folder of an analysis: what each part found, kept as soon as it is there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from isotrain.analysis.types import Found, Outcome, Record
from isotrain.record import CannotRunError
from isotrain.results import as_json, write_json
from isotrain.whole_files import replacing

PATIENCE_S = 2.0


class Store:
    """Files of one analysis: `begun.json`, `parts/`, and while it lasts `rows/`.

    Args:
        folder: made when it is owned.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = folder / "rows"

    @contextmanager
    def owned(self) -> Iterator[None]:
        """While a block lasts no other process measures here.

        Raises:
            CannotRunError: another one does.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / ".lock")
        try:
            lock.acquire(timeout=PATIENCE_S, poll_interval=0.01)
        except Timeout as error:
            raise CannotRunError(
                f"another process is at this analysis ({self.folder}); wait for it, or stop it"
            ) from error
        try:
            yield
        finally:
            lock.release()

    def begin(self, facts: Mapping[str, Any], anew: bool) -> None:
        """Note what is measured; with `anew`, or where that has changed, earlier parts go."""
        path = self.folder / "begun.json"
        plain = json.loads(json.dumps(as_json(dict(facts))))
        before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else plain
        if anew or before != plain:
            for name in ("parts", "rows"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / "result.json").unlink(missing_ok=True)
        write_json(path, plain)
        (self.folder / "parts").mkdir(exist_ok=True)
        self.rows.mkdir(exist_ok=True)

    def has(self, name: str) -> bool:
        """Whether a part is measured."""
        return self._file(name).is_file()

    def keep(self, name: str, found: Found) -> None:
        """Keep what a part found; its rows on disk are needed no longer."""
        if found.arrays:
            with replacing(self._file(name).with_suffix(".npz")) as file:
                np.savez_compressed(file, **dict(found.arrays))
        write_json(self._file(name), {"records": [dict(record) for record in found.records]})

    def outcome(self, names: Sequence[tuple[str, str]]) -> Outcome:
        """What the parts found, given as (weights, part name), with the weights in each record."""
        records: list[Record] = []
        arrays: dict[str, np.ndarray] = {}
        for weights, part in names:
            file = self._file(f"{weights}-{part}".replace(" ", "_"))
            own = json.loads(file.read_text(encoding="utf-8"))["records"]
            records += [{"weights": weights, **record} for record in own]
            if (packed := file.with_suffix(".npz")).is_file():
                with np.load(packed) as found:
                    arrays |= {f"{weights}/{key}": found[key] for key in found.files}
        return Outcome(records, arrays)

    def drop_rows(self) -> None:
        """Remove the rows that were streamed to disk."""
        shutil.rmtree(self.rows, ignore_errors=True)

    def _file(self, name: str) -> Path:
        return self.folder / "parts" / f"{name}.json"
