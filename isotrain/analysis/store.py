"""Folder of an analysis: the results of each part, stored as soon as they are computed."""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from isotrain.analysis.types import Found, Outcome, Record
from isotrain.runs.files import as_json, read_result, replacing, write_json
from isotrain.runs.record import owned


class Store:
    """Files of one analysis: `begun.json`, `parts/`, `result.json`, and while it lasts `rows/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Lock the folder; a block that fails before anything is stored leaves no new folder."""
        is_new = not self.folder.exists()
        with owned(self.folder):
            try:
                yield
            except BaseException:
                if is_new and not any(file.is_file() for file in self.folder.glob("*/**/*")):
                    shutil.rmtree(self.folder, ignore_errors=True)
                raise

    def finished(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The record of an analysis finished with these facts; empty if there is none."""
        record = read_result(self.folder)
        is_whole = all(self.has(*part) for part in record.get("parts", []))
        return record if record and is_whole and not self._changed(facts) else {}

    def begin(self, facts: Mapping[str, Any], anew: bool) -> list[str]:
        """Record the facts; returns why earlier parts are dropped: a changed fact, or `anew`."""
        n_parts = len(list(self.folder.glob("parts/*.json")))
        changed = self._changed(facts)
        if changed or (anew and (self.folder / "result.json").is_file()):
            (self.folder / "result.json").unlink(missing_ok=True)
            for name in ("parts", "rows"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
        write_json(self.folder / "begun.json", dict(facts))
        (self.folder / "parts").mkdir(exist_ok=True)
        dropped = f"{n_parts} {'part' if n_parts == 1 else 'parts'} measured before"
        return [
            f"{key} changed since this analysis was begun, from {before} to {now}; {dropped} "
            "cannot be used, all is measured again"
            for key, (before, now) in changed.items()
        ]

    def rows(self, weights: str) -> Path:
        """Folder for streamed embeddings, one per set of weights."""
        folder = self.folder / "rows" / weights.replace(" ", "_")
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def has(self, weights: str, part: str) -> bool:
        """Whether a part is measured."""
        return self._file(weights, part).is_file()

    def keep(
        self, weights: str, part: str, found: Found, seconds: float, code: Mapping[str, Any]
    ) -> None:
        """Store the results of a part, its duration, and the code version."""
        file = self._file(weights, part)
        if found.arrays:
            with replacing(file.with_suffix(".npz")) as packed:
                np.savez_compressed(packed, **found.arrays)  # type: ignore[arg-type]
        records = [dict(record) for record in found.records]
        content = {"seconds": round(seconds, 2), "code": dict(code), "records": records}
        write_json(file, content)

    def seconds(self, weights: str, part: str) -> float:
        """Duration of a measured part."""
        return float(self._read(weights, part)["seconds"])

    def of_other_code(self, code: Mapping[str, Any]) -> list[str]:
        """Names of stored parts measured by another code version."""
        files = sorted(self.folder.glob("parts/*.json"))
        kept = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}
        return [name for name, content in kept.items() if content.get("code") != dict(code)]

    def outcome(self, parts: Sequence[tuple[str, str]]) -> Outcome:
        """Results of parts, given as (weights, part name), with the weights in each record."""
        records: list[Record] = []
        arrays: dict[str, np.ndarray] = {}
        for weights, part in parts:
            own = self._read(weights, part)["records"]
            records += [{"weights": weights, **record} for record in own]
            if (packed := self._file(weights, part).with_suffix(".npz")).is_file():
                with np.load(packed) as found:
                    arrays |= {f"{weights}/{key}": found[key] for key in found.files}
        return Outcome(records, arrays)

    def drop_rows(self) -> None:
        """Remove the embeddings streamed to disk."""
        shutil.rmtree(self.folder / "rows", ignore_errors=True)

    def _changed(self, facts: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Facts that changed since the analysis was started, as (before, now)."""
        path = self.folder / "begun.json"
        now = as_json(dict(facts))
        before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else now
        return {
            key: (before.get(key), now.get(key))
            for key in {**before, **now}
            if before.get(key) != now.get(key)
        }

    def _read(self, weights: str, part: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self._file(weights, part).read_text(encoding="utf-8"))
        return content

    def _file(self, weights: str, part: str) -> Path:
        return self.folder / "parts" / f"{weights.replace(' ', '_')}-{part}.json"
