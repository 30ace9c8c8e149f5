"""Sources of examples: folders, files, the hub. (The generated one is `demo_generator.py`.)"""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from math import isclose, isfinite
from pathlib import Path
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from isotrain.config.environment import hub_or_cache
from isotrain.console import nearest
from isotrain.runs.files import sha256_of
from isotrain.tasks.data.files import READERS, format_of, read_rows
from isotrain.tasks.data.perturbations import fewer

if TYPE_CHECKING:  # torch is not needed to look for a file
    from isotrain.types import Row

SPLITS = ("train", "dev", "test")
STEMS = {  # of names of files
    "train": ("train",),
    "dev": ("dev", "val", "valid", "validation"),
    "test": ("test",),
}
SHARES = (0.8, 0.1, 0.1)  # of train, dev and test, where they are drawn
HIDDEN = -1  # the target of a row without gold
MARKS = (None, "-", "")  # how downloads write it
ENDING = re.compile(rf"({'|'.join(map(re.escape, READERS))})(\.gz)?$")  # of a data file
SHARD = re.compile(r"-\d+-of-(\d+)")  # in the name of one of several files of a part
KINDS: Mapping[type, Any] = {float: FiniteFloat, object: Any}


class DataSet(NamedTuple):
    """One data set: its name at each source, and the fields of a row with their types."""

    name: str  # folder of the local source, name in the demo source
    fields: Mapping[str, type]  # each str, int or float
    target: str  # the field that is learned, "" where there is none
    hub_id: str | None = None  # of source=hub; None = it is not there
    hub_config: str | None = None
    hub_revision: str | None = None  # a commit, so that the data stay
    folders: Sequence[str] = ()  # what downloads call the folder
    renames: Mapping[str, str] = {}  # what downloads call a field -> its name here
    classes: Sequence[str] = ()  # of the target, by number
    has_numbers: bool = True  # whether rows may have the number of a class that is no number itself
    files: Sequence[str] = ("{}.jsonl", "{}.tsv")  # names of a split's file, the first one wins
    hides: Sequence[str] = ("test",)  # splits with rows that may lack gold
    needs: Sequence[str] = ("train", "dev")  # splits without which nothing can be done

    def rename(self, row: Row) -> Row:
        """A row of a download with the names that the fields have here."""
        renames = {old: new for old, new in self.renames.items() if old not in self.fields}
        return {renames.get(name, name): value for name, value in row.items()}


class Source(ABC):
    """A source of examples. Importing and making one must not import torch."""

    split_note: str = ""  # which splits are drawn from which rows, for the record

    def missing(self, data_set: DataSet) -> str | None:
        """The missing data of a run, with the fix; None if complete. Opens no file."""
        return None

    def revision_of(self, data_set: DataSet) -> str:
        """The version of a data set, which names runs; by default the name of the class.

        Two sources that give different examples must have different revisions, or arguments.
        """
        return f"{type(self).__module__}.{type(self).__qualname__}"

    @abstractmethod
    def read(self, data_set: DataSet, split: str) -> list[Row]:
        """Examples of `train`, `dev` or `test`; `test` may be empty."""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Context in which a source may cache what it reads."""
        yield


class LocalSource(Source):
    """Examples of a folder, in the layout of this project or as GLUE and SuperGLUE are downloaded.

    The folder is the first that exists of `<root>/<name>` and `<root>/<folders>`: `rte`, `RTE`.
    The file of a split in it is the first that exists of the data set's `files`, with a name of
    `STEMS` in place of `{}`: `train.jsonl`, `train.tsv`. `read_rows` has the formats.
    """

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def revision_of(self, data_set: DataSet) -> str:
        """Name and sha256 of the bytes of its files, the same wherever they are."""
        return revision_of_files(data_set.name, self._files(data_set).values())

    def missing(self, data_set: DataSet) -> str | None:
        """The folder or files that are not there, with the fix; else None. Opens no file."""
        files, folders = self._files(data_set), self._folders(data_set)
        missing_splits = [split for split in data_set.needs if split not in files]
        if not missing_splits:
            return None
        paths = folders
        if folder := next(filter(Path.is_dir, folders), None):
            paths = [
                path for split in missing_splits for path in _candidates(folder, data_set, split)
            ]
        first_paths = (_candidates(Path(data_set.name), data_set, s)[0] for s in data_set.needs)
        return (
            f"source=local looked for {', '.join(map(str, paths))}; set ISOTRAIN_DATA_DIR (or "
            f"source.root) to a folder that holds {' and '.join(map(str, first_paths))}"
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
        return [] if file is None else read_rows(file)

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


class PartedSource(Source):
    """A source of whole data sets with named parts; missing splits are drawn from train.

    A part belongs to a split by a name of `STEMS`, or by the one word of its name that is such:
    `reviews_train`. Of parts of the hub, `test` comes before `test_extra`, and `validation_matched`
    before `validation_mismatched`. Without a part of dev, dev is drawn from train; with train
    alone, test as well. The draw keeps every class in its share, and depends on `split_seed` alone.

    Args:
        split: shares of train, dev and test; they sum to 1.
        split_seed: of the draw; it is not the seed of a run, so that all seeds share the split.

    Raises:
        ValueError: other shares.
    """

    def __init__(self, split: Sequence[float] = SHARES, split_seed: int = 0) -> None:
        if len(split) != 3 or min(split[:2]) <= 0 or split[2] < 0 or not isclose(sum(split), 1):
            raise ValueError(
                "data.split must be the shares of train, dev and test, the first two above 0, and "
                f"sum to 1, got {list(split)}; the default is {list(SHARES)}"
            )
        self.shares, self.split_seed = dict(zip(SPLITS, split, strict=True)), split_seed
        self._cache: dict[str, dict[str, list[Row]]] | None = None  # by the name of a data set

    @abstractmethod
    def parts(self, data_set: DataSet) -> dict[str, Callable[[], list[Row]]]:
        """A reader for each part, by name."""

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Context in which each part is read once."""
        self._cache = {}
        try:
            yield
        finally:
            self._cache = None

    def read(self, data_set: DataSet, split: str) -> list[Row]:
        """Examples of a split; none of a test that is neither there nor drawn.

        Raises:
            ValueError: no part is of train, or several are of one split.
        """
        if self._cache is None:
            return self._splits(data_set, [split])[split]
        if data_set.name not in self._cache:
            self._cache[data_set.name] = self._splits(data_set, SPLITS)
        return self._cache[data_set.name][split]

    def _splits(self, data_set: DataSet, splits: Sequence[str]) -> dict[str, list[Row]]:
        parts = self.parts(data_set)
        part_of = _of_splits(parts, self.revision_of(data_set))
        missing_splits = [split for split in data_set.needs if split not in part_of]
        if missing_splits and "train" not in part_of:
            names = (f"{split} ({' or '.join(STEMS[split])})" for split in SPLITS)
            raise ValueError(
                f"{data_set.name} has no part of {' or '.join(missing_splits)}; it has "
                f"{', '.join(parts) or 'none'}, and a part has the name of its split: "
                f"{', '.join(names)}"
            )
        drawn_rows: dict[str, list[Row]] = {}
        if missing_splits and set(splits) - (set(part_of) - {"train"}):
            drawn_rows = self._draw_splits(parts[part_of["train"]](), data_set, part_of)
        readers = {s: parts[part_of[s]] for s in splits if s in part_of and s not in drawn_rows}
        return {s: readers[s]() if s in readers else drawn_rows.get(s, []) for s in splits}

    def _draw_splits(
        self, rows: list[Row], data_set: DataSet, part_of: Mapping[str, str]
    ) -> dict[str, list[Row]]:
        """The rows of train, dev and perhaps test, drawn from those of train."""
        target = data_set.target
        is_score = data_set.fields.get(target) is float
        targets = {
            i: {target: "" if is_score else str(data_set.rename(row).get(target))}
            for i, row in enumerate(rows)
        }
        drawn_splits = {"train"} | ({*SPLITS} - {*part_of})
        shares = {s: share for s, share in self.shares.items() if share and s in drawn_splits}
        by_split: dict[str, list[Row]] = {split: [] for split in drawn_splits}
        for split in [s for s in shares if s != "train"]:
            n = max(1, round(len(rows) * shares[split] / sum(shares.values())))
            sample = fewer(targets, n, f"{self.split_seed}/{split}", target)
            targets = {i: row for i, row in targets.items() if i not in sample}
            by_split[split] = [rows[i] for i in sample]
        by_split["train"] = [rows[i] for i in targets]
        sizes = ", ".join(f"{len(by_split[split]):,} {split}" for split in shares)
        self.split_note = (
            f"{sizes} of {len(rows):,} rows of {self.revision_of(data_set)}, by "
            f"data.split={list(self.shares.values())} and data.split_seed={self.split_seed}"
        )
        fields = [name for name, kind in data_set.fields.items() if kind is str and name != target]
        texts = {
            split: [[data_set.rename(row).get(name) for name in fields] for row in split_rows]
            for split, split_rows in by_split.items()
        }
        train_texts = set(map(repr, texts.pop("train")))
        if n_same := sum(repr(text) in train_texts for part in texts.values() for text in part):
            self.split_note += f"; {n_same:,} of those held out have the same text as one of train"
        return by_split


class HubSource(PartedSource):
    """Data sets of the Hugging Face hub: each at its pinned revision, or one that is named.

    Args:
        split, split_seed: as in `PartedSource`.
        hub: id of a data set, for any task; None = the one that the task describes.
        name: its configuration.
        revision: a commit, branch or tag; None = the newest commit.
    """

    def __init__(
        self,
        split: Sequence[float] = SHARES,
        split_seed: int = 0,
        hub: str | None = None,
        name: str | None = None,
        revision: str | None = None,
    ) -> None:
        super().__init__(split, split_seed)
        self.hub, self.name, self.revision = hub, name, revision

    def missing(self, data_set: DataSet) -> str | None:
        """A data set that is not on the hub; else None."""
        if self.hub or data_set.hub_id:
            return None
        return (
            f"source=hub has no {data_set.name}: its task names no data set of the hub; use "
            "data.path=FILE_OR_FOLDER, data.hub=ID (and data.name=...), or source=local "
            "(ISOTRAIN_DATA_DIR)"
        )

    def revision_of(self, data_set: DataSet) -> str:
        """Hub id and commit, for the record.

        Raises:
            ValueError: there is none (`missing`).
        """
        hub_id, _, revision = self._hub_location(data_set)
        return f"{hub_id}@{commit_of(hub_id, revision)}"

    def parts(self, data_set: DataSet) -> dict[str, Callable[[], list[Row]]]:
        """The splits of the data set, as the hub names them."""
        from datasets import load_dataset  # seconds to import, and only this source needs it

        hub_id, name, revision = self._hub_location(data_set)
        with _hub_request(hub_id):
            splits: Any = load_dataset(hub_id, name, revision=commit_of(hub_id, revision))
        return {str(part): partial(list, rows) for part, rows in splits.items()}

    def _hub_location(self, data_set: DataSet) -> tuple[str, str | None, str | None]:
        if problem := self.missing(data_set):
            raise ValueError(problem)
        if self.hub:
            return self.hub, self.name, self.revision
        return str(data_set.hub_id), data_set.hub_config, data_set.hub_revision


class PathSource(PartedSource):
    """One data set of a file or folder: csv, tsv, jsonl, json, parquet, or of `save_to_disk`.

    A folder has a file for each split (`PartedSource` says by which names), or one file; other
    files are left alone. Nothing in it is run, and nothing is cached.
    """

    def __init__(self, path: str, split: Sequence[float] = SHARES, split_seed: int = 0) -> None:
        super().__init__(split, split_seed)
        self.path = Path(path)

    def missing(self, data_set: DataSet) -> str | None:
        """A path that is not there, or without data; else None. Opens no file."""
        if not self.path.exists():
            siblings = [file.name for file in self.path.parent.glob("*")]
            hint = nearest(self.path.name, siblings, f"{self.path.parent} has") if siblings else ""
            return f"data.path={self.path} is not there; {hint or 'give a file or folder'}"
        if self._is_saved() or self._files():
            return None
        names = sorted(file.name for file in self.path.glob("*")) if self.path.is_dir() else []
        return (
            f"data.path={self.path} has no file of {' '.join(READERS)} (or these and .gz), and is "
            f"no folder of save_to_disk; it has {', '.join(names[:20]) or 'none'}"
        )

    def revision_of(self, data_set: DataSet) -> str:
        """Name and sha256 of the bytes of its files, the same wherever they are.

        Raises:
            ValueError: there are none (`missing`).
        """
        if problem := self.missing(data_set):
            raise ValueError(problem)
        if self._is_saved():  # without what `datasets` caches beside the data
            paths = sorted(filter(Path.is_file, self.path.rglob("*")))
            files = [file for file in paths if not file.name.startswith("cache-")]
        else:
            parts = self._files()
            files = [f for name in _of_splits(parts, self.path).values() for f in parts[name]]
        return revision_of_files(self.path.resolve().name, files)

    def parts(self, data_set: DataSet) -> dict[str, Callable[[], list[Row]]]:
        """Files of the folder by name; one file, or a saved `Dataset`, is all of train."""
        if not self._is_saved():
            return {name: partial(_read_files, files) for name, files in self._files().items()}
        from datasets import Dataset, load_from_disk

        splits = load_from_disk(str(self.path), keep_in_memory=True)
        if isinstance(splits, Dataset):
            splits = {"train": splits}
        return {
            str(part): partial(_numbered, rows, f"{self.path} {part}")
            for part, rows in splits.items()
        }

    def _is_saved(self) -> bool:
        return any((self.path / name).is_file() for name in ("dataset_dict.json", "state.json"))

    def _files(self) -> dict[str, list[Path]]:
        """Its data files by their names, shards together; one alone is `train`.

        Raises:
            ValueError: a shard is not there.
        """
        paths = self.path.iterdir() if self.path.is_dir() else [self.path]
        files = sorted(filter(Path.is_file, paths))
        parts: dict[str, list[Path]] = {}
        for file in files:
            if format_of(file) in READERS:
                parts.setdefault(SHARD.sub("", file.name), []).append(file)
        for shards in parts.values():
            shard = SHARD.search(shards[0].name)
            if shard and len(shards) != int(shard[1]):
                raise ValueError(f"{shards[0]}: only {len(shards)} of these files are there")
        return {"train": next(iter(parts.values()))} if len(parts) == 1 else parts


@cache
def commit_of(hub_id: str, revision: str | None) -> str:
    """The commit of a revision of a data set of the hub, looked up once in a process.

    >>> commit_of("nyu-mll/glue", "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c")
    'bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c'
    """
    if revision and re.fullmatch("[0-9a-f]{40}", revision):
        return revision
    from huggingface_hub import HfApi

    with _hub_request(hub_id):
        return str(HfApi().dataset_info(hub_id, revision=revision).sha)


@contextmanager
def _hub_request(hub_id: str) -> Iterator[None]:
    """Raise one ConnectionError for a data set that is neither in the cache nor reachable."""
    with hub_or_cache() as reason:
        try:
            yield
        except OSError as error:
            if not reason:
                raise
            raise ConnectionError(
                f"{hub_id} is neither in the cache nor reachable on the hub; use data.path=FILE, "
                f"source=local or source=demo. What went wrong: {reason}"
            ) from error


def revision_of_files(name: str, files: Iterable[Path]) -> str:
    """A name, and the first digits of the sha256 of the names and bytes of files."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode())
        digest.update(bytes.fromhex(sha256_of(file)))
    return f"{name} (sha256 {digest.hexdigest()[:12]})"


def _read_files(files: Iterable[Path]) -> list[Row]:
    return [row for file in files for row in read_rows(file)]


def _numbered(rows: Iterable[Row], where: str) -> list[Row]:
    return [{**row, "at": f"{where} row {i}"} for i, row in enumerate(rows, start=1)]


def _of_splits(parts: Iterable[str], where: object) -> dict[str, str]:
    """The part of each split that has one.

    >>> _of_splits(["train", "validation_matched", "validation_mismatched", "ax"], "mnli")
    {'train': 'train', 'dev': 'validation_matched'}
    """
    words = {part: re.findall("[a-z]+", ENDING.sub("", part.lower())) for part in parts}
    part_of: dict[str, str] = {}
    for split, stems in STEMS.items():
        matches = [p for p, w in words.items() if {*w} & {*stems} and "mismatched" not in w]
        is_hub = not any(map(ENDING.search, matches))
        matches = [p for p in matches if is_hub and len(words[p]) == 1] or matches
        if len(matches) > 1:
            fix = "give data.path of a folder with one" if is_hub else "leave one, or give its path"
            raise ValueError(f"{where}: {', '.join(matches)} are all of {split}; {fix}")
        if matches and matches[0] in part_of.values():
            raise ValueError(
                f"{where}: {matches[0]} has the names of two splits; name it after one"
            )
        if matches:
            part_of[split] = matches[0]
    return part_of


def load_split(source: Source, data_set: DataSet, split: str) -> list[Row]:
    """Examples of a split with exactly the fields of the data set, and `at`: their origin.

    A class name becomes its number, and a target that the split hides becomes −1. Class
    numbers are accepted only if no class name is itself a number.

    Raises:
        ValueError: a split that is needed without rows, or a row with a missing or wrong field;
            file and line, or revision, split and row (from 0), are named.
    """
    if "at" in data_set.fields:
        raise ValueError("a column of a task must not be named at, where a row says its origin")
    source_rows = source.read(data_set, split)
    if not source_rows and split in data_set.needs:
        raise ValueError(f"{data_set.name}/{split} has no rows in {source.revision_of(data_set)}")
    may_hide = bool(data_set.target) and split in data_set.hides
    adapters = {n: TypeAdapter(KINDS.get(kind, kind)) for n, kind in data_set.fields.items()}
    if classes := data_set.classes:
        n = len(classes) if _takes_numbers(data_set) else 0
        number = Annotated[int, Field(ge=HIDDEN if may_hide else 0, lt=n)]
        adapters[data_set.target] = TypeAdapter(number)
    rows = []
    for i, row in enumerate(source_rows):
        at = row.get("at") or f"{source.revision_of(data_set)} {split} row {i}"
        rows.append({**_typed(row, data_set, at, may_hide, adapters), "at": at})
    return rows


def _candidates(folder: Path, data_set: DataSet, split: str) -> list[Path]:
    return [folder / name.format(stem) for name in data_set.files for stem in STEMS[split]]


def number_of(text: str) -> float | None:
    """Parse a text as a finite number; None if it is none."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None


def _typed(
    row: Row, data_set: DataSet, at: str, may_hide: bool, adapters: Mapping[str, TypeAdapter[Any]]
) -> Row:
    target, classes = data_set.target, data_set.classes
    named_row = data_set.rename(row)
    value = named_row.get(target)
    typed_row: Row = {}
    if value is not None and str(value) in classes:  # a name, or the boolean of that name
        typed_row[target] = classes.index(str(value))
    elif may_hide and value in (*MARKS, HIDDEN, str(HIDDEN)):
        typed_row[target] = HIDDEN
    open_fields = [name for name in data_set.fields if name not in typed_row]
    if missing_fields := [name for name in open_fields if named_row.get(name) is None]:
        columns = [name for name, cell in row.items() if cell is not None and name != "at"]
        raise ValueError(
            f"{at}: lacks {', '.join(missing_fields)}; {nearest(missing_fields[0], columns)} A row "
            f"of {data_set.name} needs {', '.join(data_set.fields)} (task.text and task.label)"
        )
    for name in open_fields:
        value = named_row[name]
        try:
            if isinstance(value, str):  # of a tsv file
                typed_row[name] = adapters[name].validate_strings(value)
            else:
                typed_row[name] = adapters[name].validate_python(value, strict=True)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            if name == target and data_set.fields[name] is float:
                reason = "must be a number"
            if name == target and classes:
                or_number = f", or a number below {len(classes)}" * _takes_numbers(data_set)
                reason = f"must be one of {', '.join(classes[:20])}{or_number}"
            raise ValueError(f"{at}: {name}: {reason}, got {shortened(value)}") from error
    return typed_row


def _takes_numbers(data_set: DataSet) -> bool:
    return data_set.has_numbers and all(number_of(name) is None for name in data_set.classes)
