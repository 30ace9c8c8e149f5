"""Atomic file writes, run records, and quarantine of damaged files."""

import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from itertools import count
from pathlib import Path
from reprlib import repr as shortened
from stat import S_ISREG
from types import MappingProxyType
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationError
from pydantic_core import from_json, to_json

from isotrain.console import UserError

RECORD_FILE = "result.json"
WEIGHTS_FILE = "weights.safetensors"  # final weights and layer statistics
DIGESTS = ("metrics.jsonl", "predictions/dev.csv", "predictions/test.csv")  # of a finished run
ASIDE = ".damaged"  # appended to the name of what is put aside
MOST_BYTES = 2**28  # of a record that is read whole; isotrain writes less than one MB

Count = Annotated[int, Field(ge=0, lt=2**63)]


class DamagedError(UserError):
    """A stored file that has been changed or damaged; `reason` says where, and why."""

    fix = (
        "move that file away and run the same command again, with rerun=true if that run had "
        "finished"
    )

    def __init__(self, path: Path | str, reason: str) -> None:
        self.path, self.reason = Path(path), reason
        super().__init__(f"{path} is damaged ({reason}); {self.fix}")


class ChangedError(DamagedError):
    """A file of a finished run that is not what its digest says; the run is left as it is."""

    fix = "put it back as it was, or train that run again with rerun=true"


class _Sizes(BaseModel, strict=True):
    dev: Count
    train: Count = 0
    test: Count = 0


class _Result(BaseModel, strict=True):
    """Fields of `result.json` that its readers need; any but `status` may be missing.

    Of a finished run, the digest of the record catches a change of any field.
    """

    status: Literal["running", "finished", "failed", "interrupted"]
    finished_at: Annotated[str, AfterValidator(datetime.fromisoformat)] = "2000-01-01"
    method: Annotated[str, Field(pattern=r"^[\w.+=-]+$")] = "none"
    seed: Count = 0
    overrides: list[str] = []
    search: str = ""
    config: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    n_rows: _Sizes | None = None
    monitor: str = ""
    headline: list[str] = []
    scores: dict[str, Annotated[float, Field(allow_inf_nan=False)] | None] = {}
    sha256: dict[str, str] = {}


class _Line(BaseModel, strict=True, extra="allow"):
    """A line of `metrics.jsonl`; null for a value that was not finite."""

    __pydantic_extra__: dict[str, Annotated[float, Field(allow_inf_nan=False)] | None]
    step: int


class Record(dict[str, Any]):
    """The content of a record; a field that it lacks is a DamagedError."""

    def __init__(self, path: Path, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self.path = path

    def __missing__(self, key: str) -> Any:
        raise DamagedError(self.path, f"{key} is missing")


@contextmanager
def replacing(path: Path, by_one: bool = False) -> Iterator[BinaryIO]:
    """Write `path` atomically: an open file that replaces it when the block ends.

    Until then it is in the same folder, under another name that ends in `.part`; a block that fails
    removes it. Of several processes that write one file, the last one wins. With `by_one` (a single
    writer) the name is fixed, so that the next write replaces leftovers of a killed process.

    Raises:
        OSError: the folder is not there, or has no room.
    """
    suffix = "" if by_one else f".{os.getpid()}-{secrets.token_hex(4)}"
    part = path.with_name(f"{path.name}{suffix}.part")
    try:
        part.unlink(missing_ok=True)  # it may be a link
        with part.open("xb") as file:
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
    r"""Write a text file, in UTF-8 and with `\n` unchanged, in one step."""
    replace_bytes(path, text.encode("utf-8"))


def replace_files(folder: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Write files atomically, so that no half table is read; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        replace_bytes(folder / name, content)
    return [folder / name for name in files]


def sha256_of(file: Path) -> str:
    """Hex digits of a file's SHA-256, computed once while it does not change."""
    state = file.stat()
    return _digest(file, state.st_mtime_ns, state.st_size, state.st_ino)


@cache
def _digest(file: Path, *_: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file in one step, with null for every number that is not finite."""
    replace_bytes(path, to_json(content, indent=2, inf_nan_mode="null") + b"\n")


def as_json(content: Any) -> Any:
    """The content as JSON gives it back, with null for every number that is not finite."""
    return from_json(to_json(content, inf_nan_mode="null"))


def put_aside(*paths: Path) -> list[Path]:
    """Rename existing files and folders, overwriting nothing; their new paths."""
    new_paths = []
    for path in paths:
        if path.exists():
            targets = (path.with_name(f"{path.name}{ASIDE}{k or ''}") for k in count())
            new_paths.append(path.rename(next(target for target in targets if not target.exists())))
    return new_paths


def read_json(path: Path) -> Any:
    """The content of a regular JSON file of at most `MOST_BYTES`; nothing else is opened.

    Raises:
        DamagedError: it is a folder, FIFO or device, larger, or no JSON.
    """
    state = path.stat()
    if not S_ISREG(state.st_mode) or state.st_size > MOST_BYTES:
        raise DamagedError(path, f"it is no file of at most {MOST_BYTES:,} bytes")
    try:
        return from_json(path.read_bytes(), allow_inf_nan=False)
    except ValueError as error:
        raise DamagedError(path, f"invalid JSON: {error}") from error


def read_result(folder: Path) -> dict[str, Any]:
    """The `result.json` of a run or analysis; empty if there is none.

    A score that is null in the file is NaN: JSON has no number for it. The record, the metrics and
    the predictions of a finished run are compared with their digests in it, if it has any.

    Raises:
        DamagedError: it is no such record; the message names the field.
        ChangedError: a digest differs.
    """
    path = folder / RECORD_FILE
    try:
        content = read_json(path)
        _Result.model_validate(content)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except ValidationError as error:
        raise DamagedError(path, _reason(error)) from error
    if "${" in json.dumps(content.get("config")):
        raise DamagedError(path, "its configuration has references, and a record has values alone")
    digests = content.get("sha256", {})
    for name, digest in _digests(folder, content).items():
        if digests.get(name, digest) != digest:
            reason = f"it was changed after the run: its SHA-256 is not that in {RECORD_FILE}"
            raise ChangedError(folder / name, reason)
    if "scores" in content:
        content["scores"] = nulls_as_nan(content["scores"])
    return Record(path, content)


def write_result(folder: Path, record: dict[str, Any]) -> None:
    """Write `result.json`; of a finished run with the SHA-256 of its files and of the record."""
    record = as_json({key: value for key, value in record.items() if key != "sha256"})
    if record.get("status") == "finished":
        record["sha256"] = _digests(folder, record)
    write_json(folder / RECORD_FILE, record)


def _digests(folder: Path, record: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of the files of a run that are there, and of its record without `sha256`."""
    files = {name: folder / name for name in DIGESTS}
    digests = {name: sha256_of(file) for name, file in files.items() if file.is_file()}
    text = json.dumps({k: v for k, v in record.items() if k != "sha256"}, sort_keys=True)
    return digests | {RECORD_FILE: hashlib.sha256(text.encode()).hexdigest()}


def _reason(error: ValidationError) -> str:
    """The first field that does not fit, and why."""
    first = error.errors(include_url=False)[0]
    field = "".join(f"{part}: " for part in [".".join(map(str, first["loc"]))] if part)
    return f"{field}{first['msg']}, got {shortened(first['input'])}"


def trained_run(folder: Path, label: str | None = None) -> dict[str, Any]:
    """The record of a finished training run that kept its final weights.

    Raises:
        UserError: the folder has no such run; the message starts with `label`, else its path.
    """
    result, label = read_result(folder), label or str(folder)
    if "checkpoint" not in result.get("config", {}):
        raise UserError(
            f"{label}: no result.json of a training run in {folder}; give the folder of a finished "
            f"run, runs/<task>/<method>-<hash>{'' if folder.is_dir() else nearest_folder(folder)}"
        )
    if result["status"] != "finished":
        raise UserError(
            f"{label}: that run is {result['status']}, not finished; give its command again until "
            "it ends"
        )
    if not (folder / WEIGHTS_FILE).is_file():
        raise UserError(
            f"{label}: that run has no {WEIGHTS_FILE} (checkpoint.final=false, or it is gone); "
            "give its command with checkpoint.final=true rerun=true"
        )
    return result


def nearest_folder(*missing: Path, extra: Mapping[str, str] = MappingProxyType({})) -> str:
    """Hint for missing folders: `; nearest: ` and the folder with the most similar name.

    Candidates are the folders in the closest existing parent, and `extra`: texts by name. Paths
    are tried in order. Empty if nothing is similar.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as place:
    ...     made = [Path(place, "wic", name) for name in ("clip-3fda", "none-5a31")]
    ...     hint = [folder.mkdir(parents=True) for folder in made] and nearest_folder(
    ...         Path(place, "wic", "nne-0123")
    ...     )
    >>> hint.endswith("wic/none-5a31")
    True
    """
    for path in missing:
        parent = next(folder for folder in path.parents if folder.is_dir())
        folders = {f.name: str(f) for f in parent.glob("[!.]*") if f.is_dir()}
        texts = dict(extra) | folders
        name = path.relative_to(parent).parts[0]
        if matches := get_close_matches(name, texts, n=1, cutoff=0.4):
            return f"; nearest: {texts[matches[0]]}"
    return ""


class RecordFile:
    """Append records `{"step": ..., "time_s": ..., key: value, ...}`; null for NaN or infinity.

    The first record replaces an old file, unless `cut` keeps some of it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.n_bytes = 0
        self.digest = hashlib.sha256()  # of those bytes

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one record; an OSError where the file is gone."""
        line = to_json(dict(row), inf_nan_mode="null") + b"\n"
        with self.path.open("r+b" if self.n_bytes else "wb") as file:
            file.truncate(file.seek(self.n_bytes))  # of a line that a full disk cut
            file.write(line)
        self.n_bytes += len(line)
        self.digest.update(line)

    def cut(self, n_bytes: int) -> list[dict[str, float]]:
        """Truncate to `n_bytes`; the records that stay."""
        if n_bytes:
            os.truncate(self.path, n_bytes)
            self.digest = hashlib.sha256(self.path.read_bytes())
        records = read_records(self.path) if n_bytes else []
        self.n_bytes = n_bytes
        return records


def read_records(path: str | Path, last_step: float = math.inf) -> list[dict[str, float]]:
    """The records of a `metrics.jsonl` up to a step, in order; none when nothing was logged.

    A last line that a killed run left unfinished is dropped, and a null is NaN.

    Raises:
        DamagedError: another line is no record; its number is named.
    """
    records: list[dict[str, float]] = []
    if not Path(path).is_file():
        return records
    with Path(path).open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                record = _Line.model_validate_json(line)
            except ValidationError as error:
                raise DamagedError(f"{path}:{number}", _reason(error)) from error
            if record.step > last_step:
                break
            records.append({"step": record.step} | nulls_as_nan(record.__pydantic_extra__))
    return records


def nulls_as_nan(values: dict[str, Any]) -> dict[str, Any]:
    """Logged values as they are computed with: NaN for null."""
    return {key: math.nan if value is None else value for key, value in values.items()}
