"""Files of a run folder: atomic writes, `result.json`, `metrics.jsonl`, `predictions/*.csv`."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np


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


HIDDEN = "<redacted>"  # stands for a secret in whatever is recorded


def read_result(folder: Path) -> dict[str, Any]:
    """The `result.json` of a run folder; empty where there is none.

    A score that is null in the file is NaN: JSON has no number for it.

    >>> read_result(Path("nowhere"))
    {}
    """
    path = folder / "result.json"
    if not path.is_file():
        return {}
    result: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "scores" in result:
        result["scores"] = nulls_as_nan(result["scores"])
    return result


def is_finished(folder: Path) -> bool:
    """Whether the run of a folder came to its end."""
    return read_result(folder).get("status") == "finished"


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a JSON file in one step, so that no half of it can be read."""
    replace_text(path, json.dumps(as_json(content), indent=2, allow_nan=False) + "\n")


def as_json(content: Any) -> Any:
    """The content with null for every number that is not finite, which JSON cannot write.

    >>> as_json({"loss": math.nan, "rows": [1, math.inf]})
    {'loss': None, 'rows': [1, None]}
    """
    if isinstance(content, dict):
        return {key: as_json(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [as_json(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def nulls_as_nan(values: dict[str, Any]) -> dict[str, Any]:
    """Logged values as they are computed with: NaN for null.

    >>> nulls_as_nan({"step": 3, "loss": None})
    {'step': 3, 'loss': nan}
    """
    return {key: math.nan if value is None else value for key, value in values.items()}


class RowFile:
    """Appends `{"step": ..., "time_s": ..., key: value, ...}` and flushes, row by row.

    A NaN or infinity is null, as JSON has no number for it.

    Args:
        path: the file; an old one is replaced at the first row, unless `cut` keeps some of it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.n_rows, self.n_bytes = 0, 0

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one line."""
        line = json.dumps(as_json(dict(row)), allow_nan=False)
        with self.path.open("ab" if self.n_bytes else "wb") as lines:
            lines.truncate(self.n_bytes)  # of a line that a full disk cut
            self.n_bytes += lines.write((line + "\n").encode())
        self.n_rows += 1

    def cut(self, n_bytes: int) -> list[dict[str, float]]:
        """The rows in the first `n_bytes`, which are kept; what follows is dropped."""
        if n_bytes:
            os.truncate(self.path, n_bytes)
        rows = read_rows(self.path) if n_bytes else []
        self.n_rows, self.n_bytes = len(rows), n_bytes
        return rows


def read_rows(path: str | Path) -> list[dict[str, float]]:
    """The rows of a metrics.jsonl, in order; none when nothing was logged.

    A last line that a killed run left unfinished is dropped, and a null is NaN.
    """
    rows: list[dict[str, float]] = []
    if not Path(path).is_file():
        return rows
    for line in Path(path).read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            rows.append(nulls_as_nan(json.loads(line)))
    return rows


COLUMNS = ("index", "label", "prediction")


@dataclass(frozen=True)
class Predictions:
    """N rows of one split, each array `[N]`, by their row number in the data set."""

    index: np.ndarray
    label: np.ndarray  # class number, or score
    prediction: np.ndarray  # what the task's metrics compare with the label


def write_predictions(folder: Path, split: str, found: Predictions) -> None:
    """Replace the file of a split in one step."""
    order = np.argsort(found.index, kind="stable")
    columns = (x[order].tolist() for x in (found.index, found.label, found.prediction))
    lines = (f"{i:.0f},{label:.9g},{p:.9g}\n" for i, label, p in zip(*columns, strict=True))
    (folder / "predictions").mkdir(parents=True, exist_ok=True)
    replace_text(path_of(folder, split), ",".join(COLUMNS) + "\n" + "".join(lines))


def read_predictions(folder: Path, split: str) -> Predictions | None:
    """What a run predicted for a split in its newest evaluation; None where nothing is kept.

    Raises:
        ValueError: the file is not as it was written.
    """
    path = path_of(folder, split)
    if not path.is_file():
        return None
    with path.open(encoding="utf-8") as lines:
        heading = lines.readline().strip()
        if heading != ",".join(COLUMNS):
            raise ValueError(f"{path} must begin with {','.join(COLUMNS)}, it has {heading!r}")
        values = np.loadtxt(lines, delimiter=",", ndmin=2)
    if values.shape[1] != len(COLUMNS):
        raise ValueError(f"{path} must have {len(COLUMNS)} columns, it has {values.shape[1]}")
    return Predictions(values[:, 0].astype(np.int64), values[:, 1], values[:, 2])


def path_of(folder: Path, split: str) -> Path:
    """Where the predictions of a split stand."""
    return folder / "predictions" / f"{split}.csv"
