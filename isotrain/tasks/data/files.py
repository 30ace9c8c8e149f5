"""Rows of data files: csv, tsv, jsonl, json and parquet, each also gzipped, and plain text.

Texts stay as they are written: `NA`, `01` and `2012-01-01` are texts. A line with a cell too many
or too few is an error; readers that fill it or cut it give wrong rows without a word.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:  # torch is not needed to read a file
    from isotrain.types import Row

Line = tuple[int, list[str]]  # its number in the file, its cells


def format_of(file: Path) -> str:
    """The ending of a file's name, less `.gz`.

    >>> format_of(Path("a/train.csv.gz")), format_of(Path("wiki.train.tokens"))
    ('.csv', '.tokens')
    """
    return Path(file.name.removesuffix(".gz")).suffix.lower()


def read_rows(file: Path) -> list[Row]:
    """The rows of a file, each with `at`: the file and the line, or the number of the row, from 1.

    In a csv quotes may hold commas and line ends; in a tsv they are ordinary characters. A jsonl
    file has an object a line; a json file has a list of objects, or lines as a jsonl. A file of
    another ending is text: each line that is not blank is a row of one field, `text`.

    Raises:
        ValueError: a line that is not a row, or a file that cannot be read; file and line are
            named.
    """
    try:
        return list(READERS.get(format_of(file), _texts)(file))
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: {error}; save it as UTF-8") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{file}: {error}; is it whole, and compressed by gzip?") from error


def _open(file: Path, newline: str) -> TextIO:
    opener = gzip.open if file.suffix == ".gz" else open
    return opener(file, "rt", encoding="utf-8-sig", newline=newline)


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, with their numbers; a lone carriage return ends none."""
    with _open(file, "\n") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, line.rstrip("\r\n")


def _texts(file: Path) -> Iterator[Row]:
    for number, line in _lines(file):
        yield {"text": line, "at": f"{file}:{number}"}


def _objects(file: Path) -> Iterator[Row]:
    for number, line in _lines(file):
        yield _object(json.loads, line, f"{file}:{number}")


def _json(file: Path) -> Iterator[Row]:
    with _open(file, "\n") as lines:
        content = lines.read()
    if not content.lstrip().startswith("["):
        yield from _objects(file)
        return
    try:
        rows = json.loads(content)
    except ValueError as error:
        raise ValueError(f"{file}: no list of JSON objects ({error})") from error
    for number, row in enumerate(rows, start=1):
        yield _object(dict, row, f"{file} row {number}")


def _object(parse: Callable[..., Mapping[str, object]], raw: object, at: str) -> Row:
    try:
        return {**parse(raw), "at": at}
    except (ValueError, TypeError) as error:
        raise ValueError(f"{at}: not a JSON object ({error})") from error


def _comma_lines(file: Path) -> Iterator[Line]:
    with _open(file, "") as lines:
        csv.field_size_limit(2**31 - 1)  # a cell may hold a whole document
        reader, line_number = csv.reader(lines, strict=True), 1
        try:
            for cells in reader:
                if cells:  # a blank line has none
                    yield line_number, cells
                line_number = reader.line_num + 1
        except csv.Error as error:
            raise ValueError(f"{file}:{line_number}: {error}; does each quote close?") from error


def _tab_lines(file: Path) -> Iterator[Line]:
    for number, line in _lines(file):
        yield number, line.split("\t")


def _table(file: Path) -> Iterator[Row]:
    lines = _comma_lines(file) if format_of(file) == ".csv" else _tab_lines(file)
    _, names = next(lines, (0, []))
    if duplicates := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{file}: its header names {', '.join(sorted(duplicates))} more than once")
    if len(names) == 1 and (separators := {";", "\t"} & {*names[0]}):
        raise ValueError(
            f"{file}: its header is one column, {names[0]!r}; {sorted(separators)} does not part "
            "cells of a csv: save it with commas, or as a tsv with tabs"
        )
    for number, cells in lines:
        if len(cells) != len(names):
            raise ValueError(
                f"{file}:{number}: {len(cells)} columns, the header has {len(names)} "
                f"({', '.join(names)})"
            )
        yield {**dict(zip(names, cells, strict=True)), "at": f"{file}:{number}"}


def _parquet(file: Path) -> Iterator[Row]:
    from pyarrow import ArrowException, parquet

    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            rows = parquet.read_table(BytesIO(stream.read())).to_pylist()
    except ArrowException as error:
        raise ValueError(f"{file}: {error}") from error
    for number, row in enumerate(rows, start=1):
        yield {**row, "at": f"{file} row {number}"}


READERS: Mapping[str, Callable[[Path], Iterator[Row]]] = {
    **{".csv": _table, ".tsv": _table, ".jsonl": _objects, ".json": _json, ".parquet": _parquet}
}
