"""Atomic file writes, run records, and quarantine of damaged files."""

import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cache, partial
from itertools import count
from pathlib import Path
from reprlib import repr as shortened
from stat import S_ISREG
from types import NoneType
from typing import Annotated, Any, BinaryIO, Literal

from pydantic import AfterValidator, BaseModel, Field, ValidationError
from pydantic_core import from_json

RECORD_FILE = "result.json"
WEIGHTS_FILE = "weights.safetensors"  # final weights and layer statistics
DIGESTS = ("metrics.jsonl", "predictions/dev.csv", "predictions/test.csv")  # of a finished run
CHANGED = "it was changed after the run: its SHA-256 is not"
ASIDE = ".damaged"  # appended to the name of what is put aside
MOST_BYTES = 2**28  # of a record that is read whole; isotrain writes less than one MB

Count = Annotated[int, Field(ge=0, lt=2**63)]
VALUES = {int, float, NoneType}  # null where a value was not finite


class DamagedError(ValueError):
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
    own = "" if by_one else f".{os.getpid()}-{secrets.token_hex(4)}"
    part = path.with_name(f"{path.name}{own}.part")
    try:
        part.unlink(missing_ok=True)  # it may be a link
        with part.open("xb") as file:
            yield file
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def check_inside(root: Path, folder: Path) -> None:
    """Raise a PermissionError if a folder that is to be written to is a link out of `root`."""
    if not Path(target := os.path.realpath(folder)).is_relative_to(os.path.realpath(root)):
        raise PermissionError(
            f"{folder} leads to {target} by a link, out of {root}; delete the link, or give "
            "another output_dir=..."
        )


def make_inside(root: Path, folder: Path) -> None:
    """Make a folder below `root` to write to; see `check_inside`."""
    check_inside(root, folder)
    folder.mkdir(parents=True, exist_ok=True)


def replace_bytes(path: Path, content: bytes) -> None:
    """Write a file in one step."""
    with replacing(path) as file:
        file.write(content)


def replace_text(path: Path, text: str) -> None:
    r"""Write a text file, in UTF-8 and with `\n` unchanged, in one step."""
    replace_bytes(path, text.encode("utf-8"))


def sha256_of(file: Path) -> str:
    """Hex digits of a file's SHA-256, computed once while it does not change."""
    state = file.stat()
    return _digest(file, state.st_mtime_ns, state.st_size, state.st_ino)


@cache
def _digest(file: Path, *_: int) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to storage."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file in one step, with null for every number that is not finite."""
    replace_text(path, json.dumps(as_json(content), indent=2, allow_nan=False) + "\n")


def as_json(content: Any) -> Any:
    """The content with null for every number that is not finite, which JSON cannot write."""
    if isinstance(content, dict):
        return {key: as_json(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [as_json(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def put_aside(*paths: Path) -> list[Path]:
    """Rename those of these files and folders that are there; the new names replace nothing."""
    moved = []
    for path in paths:
        if path.exists():
            asides = (path.with_name(f"{path.name}{ASIDE}{k or ''}") for k in count())
            moved.append(path.rename(next(aside for aside in asides if not aside.exists())))
    return moved


def read_bytes(path: Path) -> bytes:
    """The content of a regular file of at most `MOST_BYTES`; nothing else is opened.

    Raises:
        DamagedError: it is a folder, FIFO or device, or larger.
    """
    state = path.stat()
    if not S_ISREG(state.st_mode):
        raise DamagedError(path, "it is no file")
    if state.st_size > MOST_BYTES:
        raise DamagedError(path, f"it has more than {MOST_BYTES:,} bytes")
    return path.read_bytes()


def parse_object(text: bytes, where: Path | str) -> dict[str, Any]:
    """The JSON object in a text of the file or line `where`; a DamagedError if it has none."""
    try:
        content = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise DamagedError(where, f"invalid JSON: {error}") from error
    if not isinstance(content, dict):
        raise DamagedError(where, "it must be a JSON object")
    return content


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
        result = Record(path, parse_object(read_bytes(path), path))
        _Result.model_validate(result)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except ValidationError as error:
        raise DamagedError(path, _reason(error)) from error
    if "${" in json.dumps(result.get("config")):
        raise DamagedError(path, "its configuration has references, and a record has values alone")
    _check_digests(folder, result)
    if "scores" in result:
        result["scores"] = nulls_as_nan(result["scores"])
    return result


def _reason(error: ValidationError) -> str:
    """The first field that does not fit, and why."""
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"{field} is missing"
    return f"{field}: {first['msg']}, got {shortened(first['input'])}"


def write_result(folder: Path, record: dict[str, Any]) -> None:
    """Write `result.json`; of a finished run with the SHA-256 of its files and of the record."""
    record = {key: value for key, value in record.items() if key != "sha256"}
    if record.get("status") == "finished":
        files = {name: folder / name for name in DIGESTS}
        digests = {name: sha256_of(file) for name, file in files.items() if file.is_file()}
        record = json.loads(json.dumps(as_json(record))) | {"sha256": digests}
        digests[RECORD_FILE] = _digest_of_record(record)
    write_json(folder / RECORD_FILE, record)


def _check_digests(folder: Path, record: Mapping[str, Any]) -> None:
    """Raise a ChangedError if a finished run's file is not as it was; deleted ones do not count."""
    digests = record.get("sha256") or {}
    if digests and digests.get(RECORD_FILE) != _digest_of_record(record):
        raise ChangedError(folder / RECORD_FILE, f"{CHANGED} the one that it holds")
    for name in DIGESTS:
        if (
            name in digests
            and (folder / name).is_file()
            and sha256_of(folder / name) != digests[name]
        ):
            raise ChangedError(folder / name, f"{CHANGED} that in {RECORD_FILE}")


def _digest_of_record(record: Mapping[str, Any]) -> str:
    """SHA-256 of a record without its own digest, as JSON with sorted keys."""
    others = {name: digest for name, digest in record["sha256"].items() if name != RECORD_FILE}
    text = json.dumps({**record, "sha256": others}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def trained_run(folder: Path, given: str | None = None) -> dict[str, Any]:
    """The record of a finished training run that kept its final weights.

    Raises:
        ValueError: the folder has no such run; the message starts with `given`, else its path.
    """
    result, given = read_result(folder), given or str(folder)
    if "checkpoint" not in (config := result.get("config", {})):
        raise ValueError(
            f"{given}: no result.json of a training run in {folder}; give the folder of a finished "
            "run, runs/<task>/<method>-<hash>"
        )
    if result["status"] != "finished":
        raise ValueError(
            f"{given}: that run is {result['status']}, not finished; give its command again until "
            "it ends"
        )
    if not (folder / WEIGHTS_FILE).is_file():
        why = "it is gone" if config["checkpoint"].get("final") else "checkpoint.final=false"
        raise ValueError(
            f"{given}: that run has no {WEIGHTS_FILE} ({why}); give its command with "
            "checkpoint.final=true rerun=true"
        )
    return result


class RecordFile:
    """Append records `{"step": ..., "time_s": ..., key: value, ...}`; null for NaN or infinity.

    The first record replaces an old file, unless `cut` keeps some of it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.n_records, self.n_bytes = 0, 0
        self.digest = hashlib.sha256()  # of those bytes

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one record; an OSError where the file is gone or shorter than it was."""
        line = (json.dumps(as_json(dict(row)), allow_nan=False) + "\n").encode()
        with self.path.open("r+b" if self.n_bytes else "wb") as lines:
            if lines.seek(0, os.SEEK_END) < self.n_bytes:
                raise OSError(errno.EIO, "Records were deleted", str(self.path))
            lines.truncate(lines.seek(self.n_bytes))  # of a line that a full disk cut
            lines.write(line)
        self.n_bytes += len(line)
        self.digest.update(line)
        self.n_records += 1

    def cut(self, n_bytes: int) -> list[dict[str, float]]:
        """Truncate to `n_bytes`; the records that stay."""
        if n_bytes:
            os.truncate(self.path, n_bytes)
            self.digest = hashlib.sha256(self.path.read_bytes())
        records = read_records(self.path) if n_bytes else []
        self.n_records, self.n_bytes = len(records), n_bytes
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
        for number, line in enumerate(iter(partial(lines.readline, MOST_BYTES), b""), start=1):
            if not line.endswith(b"\n"):
                break
            record = nulls_as_nan(_values(line, f"{path}:{number}"))
            if record["step"] > last_step:
                break
            records.append(record)
    return records


def _values(line: bytes, where: str) -> dict[str, Any]:
    """The numbers of one line of a `metrics.jsonl`, with its step."""
    record = parse_object(line, where)
    if type(record.get("step")) is not int:
        raise DamagedError(where, f"step must be a whole number, got {record.get('step')!r:.50}")
    if not VALUES.issuperset(map(type, record.values())):
        key, value = next((k, v) for k, v in record.items() if type(v) not in VALUES)
        raise DamagedError(where, f"{key} must be a number or null, got {shortened(value)}")
    return record


def nulls_as_nan(values: dict[str, Any]) -> dict[str, Any]:
    """Logged values as they are computed with: NaN for null."""
    return {key: math.nan if value is None else value for key, value in values.items()}
