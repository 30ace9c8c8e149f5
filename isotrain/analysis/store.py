"""Folder of an analysis: the results of each part, stored as soon as they are computed."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isotrain.analysis.types import Outcome, PartResult, Record
from isotrain.runs.files import as_json, read_result, replacing, write_json


class Store:
    """Files of one analysis: `begun.json`, `parts/` and `result.json`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def finished(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The record of an analysis finished with these facts; empty if there is none."""
        record = read_result(self.folder)
        return record if record == record | as_json(dict(facts)) else {}

    def begin(self, facts: Mapping[str, Any], anew: bool) -> None:
        """Drop parts measured with other facts, such as data or code; `anew`, finished ones too."""
        begun, result = self.folder / "begun.json", self.folder / "result.json"
        is_same = begun.is_file() and json.loads(begun.read_text("utf-8")) == as_json(dict(facts))
        if not is_same or (anew and result.is_file()):
            result.unlink(missing_ok=True)
            shutil.rmtree(self.folder / "parts", ignore_errors=True)
        write_json(begun, dict(facts))
        (self.folder / "parts").mkdir(exist_ok=True)

    def has(self, weights: str, part: str) -> bool:
        """Whether a part is measured."""
        return self._file(weights, part).is_file()

    def keep(self, weights: str, part: str, results: PartResult) -> None:
        """Store the results of a part."""
        file = self._file(weights, part)
        if results.arrays:
            with replacing(file.with_suffix(".npz")) as archive:
                np.savez_compressed(archive, **results.arrays)  # type: ignore[arg-type]
        write_json(file, {"records": [dict(record) for record in results.records]})

    def outcome(self, parts: Sequence[tuple[str, str]]) -> Outcome:
        """Results of parts, given as (weights, part name), with the weights in each record."""
        records: list[Record] = []
        arrays: dict[str, np.ndarray] = {}
        for weights, part in parts:
            file = self._file(weights, part)
            part_records = json.loads(file.read_text(encoding="utf-8"))["records"]
            records += [{"weights": weights, **record} for record in part_records]
            if (path := file.with_suffix(".npz")).is_file():
                with np.load(path) as archive:
                    arrays |= {f"{weights}/{key}": archive[key] for key in archive.files}
        return Outcome(records, arrays)

    def _file(self, weights: str, part: str) -> Path:
        return self.folder / "parts" / f"{weights.replace(' ', '_')}-{part}.json"
