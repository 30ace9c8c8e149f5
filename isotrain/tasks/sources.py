"""Where rows come from: JSON-lines folders and the hub. (The generated source is demo.py.)"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from isotrain.types import Row

SPLITS = ("train", "dev", "test")


class DataSet(NamedTuple):
    """One data set under the names each source knows it by, with the fields a row must have."""

    name: str  # folder of the local source, name in the demo source
    fields: tuple[str, ...]
    hub_id: str
    hub_config: str | None
    hub_revision: str


class LocalSource:
    """`<root>/<set>/<split>.jsonl`, one JSON object a line."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def revision_of(self, data_set: DataSet) -> str:
        """The folder, for the record."""
        return str(self.root / data_set.name)

    def read(self, data_set: DataSet, split: str) -> list[Row]:
        """Rows of a split; empty where the file is absent.

        Raises:
            FileNotFoundError: no folder of that data set.
            ValueError: a line that is not a JSON object; file and line are named.
        """
        folder = self.root / data_set.name
        if not folder.is_dir():
            raise FileNotFoundError(
                f"source=local looked for {folder}; set ISOTRAIN_DATA_DIR to the folder that "
                f"holds {data_set.name}/train.jsonl, or use source=hub or source=demo"
            )
        path = folder / f"{split}.jsonl"
        if not path.is_file():
            return []
        rows = []
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except json.JSONDecodeError as error:
                    raise ValueError(f"{path}:{number}: not JSON ({error.msg})") from error
                if not isinstance(row, dict):
                    raise ValueError(f"{path}:{number}: a line must be one JSON object")
                rows.append(row)
        return rows


class HubSource:
    """Data sets of the Hugging Face hub at pinned revisions."""

    def revision_of(self, data_set: DataSet) -> str:
        """Hub id and commit, for the record."""
        return f"{data_set.hub_id}@{data_set.hub_revision}"

    def read(self, data_set: DataSet, split: str) -> list[Row]:
        """Rows of a split at the data set's pinned revision."""
        from datasets import load_dataset  # seconds to import, and only this source needs it

        try:
            found: Any = load_dataset(
                data_set.hub_id,
                data_set.hub_config,
                split="validation" if split == "dev" else split,
                revision=data_set.hub_revision,
            )
        except OSError as error:
            raise OSError(
                f"source=hub cannot read {self.revision_of(data_set)}: {error}. Without a network "
                "use source=local (ISOTRAIN_DATA_DIR) or source=demo"
            ) from error
        return [dict(row) for row in found]


def load_splits(source: Any, data_set: DataSet) -> dict[str, list[Row]]:
    """Rows of every split, after a check of their fields; train and dev must not be empty.

    Raises:
        ValueError: an empty split, or a row without a field; set, split and row are named.
    """
    splits: dict[str, list[Row]] = {}
    for split in SPLITS:
        rows = source.read(data_set, split)
        for number, row in enumerate(rows):
            absent = [f for f in data_set.fields if row.get(f) is None]
            if absent:
                raise ValueError(
                    f"{data_set.name}/{split} row {number} lacks {', '.join(absent)}; a row "
                    f"needs {', '.join(data_set.fields)}"
                )
        if not rows and split != "test":
            raise ValueError(
                f"{data_set.name}/{split} has no rows in {source.revision_of(data_set)}"
            )
        splits[split] = rows
    return splits
