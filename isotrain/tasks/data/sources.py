"""Sources of examples: folders and the hub. (The generated one is `demo_generator.py`.)"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from isotrain.config.environment import hub_or_cache
from isotrain.runs.files import sha256_of

if TYPE_CHECKING:  # torch is not needed to look for a file
    from isotrain.types import Row

SPLITS = ("train", "dev", "test")
STEMS = {"train": ("train",), "dev": ("dev", "val", "valid"), "test": ("test",)}  # of file names
HIDDEN = -1  # the target of a row without gold
MARKS = (None, "-")  # how downloads write it
KINDS: Mapping[type, Any] = {float: FiniteFloat}


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
        """A data set that is not on the hub; else None."""
        if data_set.hub_id:
            return None
        return (
            f"source=hub has no {data_set.name}: its DataSet names no hub_id; use source=local "
            "(ISOTRAIN_DATA_DIR), or give it one"
        )

    def revision_of(self, data_set: DataSet) -> str:
        """Hub id and commit, for the record."""
        return f"{data_set.hub_id}@{data_set.hub_revision}"

    def read(self, data_set: DataSet, split: str) -> list[Row]:
        """Examples of a split at the data set's pinned revision.

        Raises:
            ConnectionError: neither in the cache nor reachable on the hub.
        """
        from datasets import load_dataset  # seconds to import, and only this source needs it

        with hub_or_cache() as why:
            try:
                rows: Any = load_dataset(
                    data_set.hub_id,
                    data_set.hub_config,
                    split="validation" if split == "dev" else split,
                    revision=data_set.hub_revision,
                )
            except ConnectionError as error:
                raise ConnectionError(
                    f"{data_set.hub_id} is neither in the cache nor reachable on the hub; use "
                    f"source=local or source=demo. What went wrong: {why or error}"
                ) from error
        return [dict(row) for row in rows]


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
    adapters = {n: TypeAdapter(KINDS.get(kind, kind)) for n, kind in data_set.fields.items()}
    if n_classes := len(data_set.classes):
        number = Annotated[int, Field(ge=HIDDEN if may_hide else 0, lt=n_classes)]
        adapters[data_set.target] = TypeAdapter(number)
    rows = []
    for i, row in enumerate(found):
        at = row.get("at") or f"{source.revision_of(data_set)} {split} row {i}"
        rows.append({**_typed(row, data_set, at, may_hide, adapters), "at": at})
    return rows


def _candidates(folder: Path, data_set: DataSet, split: str) -> list[Path]:
    return [folder / name.format(stem) for name in data_set.files for stem in STEMS[split]]


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    """Lines that are not blank, each after `<file>:<number>`."""
    try:
        with file.open(encoding="utf-8-sig", newline="\n") as lines:  # a lone \r ends no line
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield f"{file}:{number}", line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: {error}") from error


def _text_rows(file: Path) -> Iterator[Row]:
    for at, line in _lines(file):
        yield {"text": line, "at": at}


def _json_rows(file: Path) -> Iterator[Row]:
    for at, line in _lines(file):
        try:
            yield {**json.loads(line), "at": at}
        except (ValueError, TypeError) as error:
            raise ValueError(f"{at}: not a JSON object ({error})") from error


def _tab_rows(file: Path) -> Iterator[Row]:
    lines = _lines(file)
    names = next(lines, ("", ""))[1].split("\t")
    for at, line in lines:
        columns = line.split("\t")
        if len(columns) != len(names):
            raise ValueError(
                f"{at}: {len(columns)} columns between tabs, the header has {len(names)} "
                f"({', '.join(names)})"
            )
        yield {**dict(zip(names, columns, strict=True)), "at": at}


def _typed(
    row: Row, data_set: DataSet, at: str, may_hide: bool, adapters: Mapping[str, TypeAdapter[Any]]
) -> Row:
    names, target, classes = dict(data_set.renames), data_set.target, data_set.classes
    given = {names.get(name, name): value for name, value in row.items()}
    if may_hide and given.get(target) in MARKS:
        given[target] = HIDDEN
    if absent := [name for name in data_set.fields if given.get(name) is None]:
        raise ValueError(
            f"{at}: lacks {', '.join(absent)}; a row of {data_set.name} needs "
            f"{', '.join(data_set.fields)}"
        )
    if str(given.get(target)) in classes:  # a name, or the boolean of that name
        given[target] = classes.index(str(given[target]))
    typed: Row = {}
    for name, adapter in adapters.items():
        value = given[name]
        try:
            if isinstance(value, str):  # of a tsv file
                typed[name] = adapter.validate_strings(value)
            else:
                typed[name] = adapter.validate_python(value, strict=True)
        except ValidationError as error:
            why = error.errors()[0]["msg"]
            raise ValueError(f"{at}: {name}: {why}, got {shortened(value)}") from error
    return typed
