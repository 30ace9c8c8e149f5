"""Sources of examples: folders and the hub. (The generated one is `demo_generator.py`.)"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any, NamedTuple

from isotrain.config.environment import HUB_OFF, is_on
from isotrain.runs.files import sha256_of

if TYPE_CHECKING:  # torch is not needed to look for a file
    from isotrain.types import Row

SPLITS = ("train", "dev", "test")
STEMS = {"train": ("train",), "dev": ("dev", "val", "valid"), "test": ("test",)}  # of file names
HIDDEN = -1  # the target of a row without gold
MARKS = (None, "-")  # how downloads write it
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: JSON can write it, UTF-8 cannot
KINDS = {str: "a text of whole characters", int: "a whole number", float: "a finite number"}


class DataSet(NamedTuple):
    """One data set: its name at each source, and the fields of a row with their types."""

    name: str  # folder of the local source, name in the demo source
    fields: Mapping[str, type]  # each str, int or float
    target: str  # the field that is learned, "" where there is none
    hub_id: str | None = None  # of source=hub; None = it is not there
    hub_config: str | None = None
    hub_revision: str | None = None  # a commit, so that the data stay
    folders: tuple[str, ...] = ()  # what downloads call the folder
    renames: tuple[tuple[str, str], ...] = ()  # (what downloads call a field, its name here)
    classes: tuple[str, ...] = ()  # of the target, by number
    files: tuple[str, ...] = ("{}.jsonl", "{}.tsv")  # names of a split's file, the first one wins
    hides: tuple[str, ...] = ("test",)  # splits with rows that may lack gold
    needs: tuple[str, ...] = ("train", "dev")  # splits without which nothing can be done


class Source(ABC):
    """A source of examples. Importing and making one must not import torch."""

    def missing(self, data_set: DataSet) -> str | None:
        """What a run needs and is not here, with the fix; None if nothing. Opens no file."""
        return None

    def revision_of(self, data_set: DataSet) -> str:
        """The version of a data set, which names runs; by default the name of the class.

        Two sources that give different examples must have different revisions, or arguments.
        """
        return f"{type(self).__module__}.{type(self).__qualname__}"

    @abstractmethod
    def read(self, data_set: DataSet, split: str) -> list[Row]:
        """Examples of `train`, `dev` or `test`; `test` may be empty."""


class LocalSource(Source):
    """Examples of a folder, in the layout of this project or as GLUE and SuperGLUE are downloaded.

    The folder is the first that exists of `<root>/<name>` and `<root>/<folders>`: `rte`, `RTE`.
    The file of a split in it is the first that exists of the data set's `files`, with train, or
    dev, val or valid, or test in place of `{}`: `train.jsonl`, `train.tsv`. A jsonl file has one
    JSON object a line. A tsv file has a header, columns end at tabs, and quotes are ordinary
    characters. In any other file each line that is not blank is a row of one field, `text`.
    """

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def revision_of(self, data_set: DataSet) -> str:
        """Name and sha256 of the bytes of its files, the same wherever they are."""
        digest = hashlib.sha256()
        for file in self._files(data_set).values():
            digest.update(file.name.encode())
            digest.update(bytes.fromhex(sha256_of(file)))
        return f"{data_set.name} (sha256 {digest.hexdigest()[:12]})"

    def missing(self, data_set: DataSet) -> str | None:
        """The folder or files that are not there, with the fix; else None. Opens no file."""
        files, folders = self._files(data_set), self._folders(data_set)
        absent = [split for split in data_set.needs if split not in files]
        if not absent:
            return None
        wanted = folders
        if folder := next(filter(Path.is_dir, folders), None):
            wanted = [path for split in absent for path in _candidates(folder, data_set, split)]
        first = (_candidates(Path(data_set.name), data_set, s)[0] for s in data_set.needs)
        return (
            f"source=local looked for {', '.join(map(str, wanted))}; set ISOTRAIN_DATA_DIR (or "
            f"source.root) to a folder that holds {' and '.join(map(str, first))}"
            + (f", or the download {' or '.join(data_set.folders)}" if data_set.folders else "")
            + ", or use source=hub or source=demo"
        )

    def read(self, data_set: DataSet, split: str) -> list[Row]:
        """Examples of a split, with `at`, their file and line; none without a test file.

        Raises:
            FileNotFoundError: no such folder, or no file of train or dev.
            ValueError: a line that is not a row; file and line are named.
        """
        if problem := self.missing(data_set):
            raise FileNotFoundError(problem)
        file = self._files(data_set).get(split)
        if file is None:
            return []
        kinds = {".jsonl": _json_rows, ".tsv": _tab_rows}
        return list(kinds.get(file.suffix, _text_rows)(file))

    def _folders(self, data_set: DataSet) -> list[Path]:
        return [self.root / name for name in (data_set.name, *data_set.folders)]

    def _files(self, data_set: DataSet) -> dict[str, Path]:
        """The file of each split that has one."""
        folder = next(filter(Path.is_dir, self._folders(data_set)), None)
        if folder is None:
            return {}
        candidates = {split: _candidates(folder, data_set, split) for split in SPLITS}
        return {
            s: file for s, paths in candidates.items() for file in paths[::-1] if file.is_file()
        }


class HubSource(Source):
    """Data sets of the Hugging Face hub at pinned revisions."""

    def missing(self, data_set: DataSet) -> str | None:
        """A data set that is not on the hub, or not in the cache of one switched off; else None."""
        if not data_set.hub_id:
            return (
                f"source=hub has no {data_set.name}: its DataSet names no hub_id; use source=local "
                "(ISOTRAIN_DATA_DIR), or give it one"
            )
        if not is_on(*HUB_OFF):
            return None
        home = os.environ.get("HF_HOME", "~/.cache/huggingface")
        cache = Path(os.environ.get("HF_DATASETS_CACHE", f"{home}/datasets")).expanduser()
        if (cache / data_set.hub_id.replace("/", "___")).is_dir():
            return None
        return (
            f"source=hub is switched off (HF_HUB_OFFLINE) and {data_set.hub_id} is not in "
            f"{cache}; run once with network access, or use source=local (ISOTRAIN_DATA_DIR) "
            "or source=demo"
        )

    def revision_of(self, data_set: DataSet) -> str:
        """Hub id and commit, for the record."""
        return f"{data_set.hub_id}@{data_set.hub_revision}"

    def read(self, data_set: DataSet, split: str) -> list[Row]:
        """Examples of a split at the data set's pinned revision."""
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


def load_split(source: Source, data_set: DataSet, split: str) -> list[Row]:
    """Examples of a split with exactly the fields of the data set, and `at`: their origin.

    A class name becomes its number, and a target that the split hides becomes −1.

    Raises:
        ValueError: a split that is needed without rows, or a row with a missing or wrong field;
            file and line, or revision, split and row (from 0), are named.
    """
    found = source.read(data_set, split)
    if not found and split in data_set.needs:
        raise ValueError(f"{data_set.name}/{split} has no rows in {source.revision_of(data_set)}")
    may_hide = bool(data_set.target) and split in data_set.hides
    rows = []
    for number, row in enumerate(found):
        at = row.get("at") or f"{source.revision_of(data_set)} {split} row {number}"
        rows.append({**_typed(row, data_set, at, may_hide), "at": at})
    return rows


def _candidates(folder: Path, data_set: DataSet, split: str) -> list[Path]:
    return [folder / name.format(stem) for name in data_set.files for stem in STEMS[split]]


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    """Lines that are not blank, each after `<file>:<number>`."""
    # As bytes: text mode would also break lines at a lone carriage return.
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            at = f"{file}:{number}"
            try:
                text = line.decode("utf-8-sig").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise ValueError(f"{at}: not UTF-8 ({error.reason})") from error
            if text.strip():
                yield at, text


def _text_rows(file: Path) -> Iterator[Row]:
    for at, line in _lines(file):
        yield {"text": line, "at": at}


def _json_rows(file: Path) -> Iterator[Row]:
    for at, line in _lines(file):
        try:
            row = json.loads(line, object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{at}: not JSON ({getattr(error, 'msg', error)})") from error
        if not isinstance(row, dict):
            raise ValueError(f"{at}: a line must be one JSON object")
        yield {**row, "at": at}


def _once(pairs: Sequence[tuple[str, Any]], at: str = "") -> dict[str, Any]:
    """An object of JSON, or a header, with each key once."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        raise ValueError(f"{at}{shortened(twice)} is given twice")
    return found


def _tab_rows(file: Path) -> Iterator[Row]:
    lines = _lines(file)
    names = next(lines, ("", ""))[1].split("\t")
    _once([(name, "") for name in names], f"{file}:1: ")
    for at, line in lines:
        columns = line.split("\t")
        if len(columns) != len(names):
            raise ValueError(
                f"{at}: {len(columns)} columns between tabs, the header has {len(names)} "
                f"({', '.join(names)})"
            )
        yield {**dict(zip(names, columns, strict=True)), "at": at}


def _typed(row: Row, data_set: DataSet, at: str, may_hide: bool) -> Row:
    names = dict(data_set.renames)
    given = {names.get(name, name): value for name, value in row.items()}
    if may_hide and given.get(data_set.target) in MARKS:
        given[data_set.target] = HIDDEN
    if absent := [name for name in data_set.fields if given.get(name) is None]:
        raise ValueError(
            f"{at}: lacks {', '.join(absent)}; a row of {data_set.name} needs "
            f"{', '.join(data_set.fields)}"
        )
    typed: Row = {}
    for name, kind in data_set.fields.items():
        value, classes = given[name], data_set.classes if name == data_set.target else ()
        if str(value) in classes:  # a name, or the boolean of that name
            value = classes.index(str(value))
        elif isinstance(value, str) or (kind is float and type(value) is int):
            with suppress(ValueError, OverflowError):
                value = kind(value)
        least = HIDDEN if may_hide else 0
        is_class = not classes or value in range(least, len(classes))
        if not _is(value, kind) or not is_class:
            rule = KINDS[kind]
            if classes:
                rule = f"one of {', '.join(classes)}, or 0 to {len(classes) - 1}"
            raise ValueError(f"{at}: {name} must be {rule}, got {shortened(given[name])}")
        typed[name] = value
    sentences = [value for name, value in typed.items() if name.startswith("sentence")]
    if sentences and not any(map(str.strip, sentences)):
        raise ValueError(f"{at}: a row needs a sentence that is not blank; delete it, or fill it")
    return typed


def _is(value: Any, kind: type) -> bool:
    if not isinstance(value, kind) or isinstance(value, bool):
        return False
    if isinstance(value, str):
        return value.isascii() or not SURROGATE.search(value)
    return not isinstance(value, float) or math.isfinite(value)
