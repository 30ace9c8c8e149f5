"""Data files: every text as it is written, every damaged line named."""

import csv
import gzip
import json

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.tasks.data.files import read_rows

TEXTS = [
    *("NA", "null", "None", "nan", "N/A", "1", "01", "1.0", "true", "2012-01-01", "1e5", ""),
    *("a, b", 'she said "no"', "two\nlines", "Grüße, 😀", "  spaced  ", "'single'", "tab\there"),
]
ROWS = [{"text": text, "label": f"l{i % 2}"} for i, text in enumerate(TEXTS)]


def bare(rows):
    return [{key: value for key, value in row.items() if key != "at"} for row in rows]


def write(file, rows):
    """The rows by a writer that is not ours."""
    name = file.name.removesuffix(".gz")
    frame = pd.DataFrame(rows)
    if name.endswith(".parquet"):
        frame.to_parquet(file)
        return file
    if name.endswith(".csv"):
        text = frame.to_csv(index=False)
    elif name.endswith(".tsv"):
        lines = [list(rows[0]), *(row.values() for row in rows)]
        text = "".join("\t".join(line) + "\n" for line in lines)
    elif name.endswith(".jsonl"):
        text = "".join(json.dumps(row) + "\n" for row in rows)
    else:
        text = json.dumps(rows, indent=1)
    content = text.encode()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    return file


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "json", "parquet"])
@pytest.mark.parametrize("pack", ["", ".gz"])
def test_every_text_stays_as_it_is_written(tmp_path, ending, pack):
    rows = ROWS
    if ending == "tsv":  # which has no tabs and line ends in a cell
        rows = [row for row in rows if not {*"\n\t"} & {*row["text"]}]
    file = tmp_path / f"rows.{ending}{pack}"
    write(file if ending != "parquet" else tmp_path / "plain.parquet", rows)
    if ending == "parquet":
        content = (tmp_path / "plain.parquet").read_bytes()
        file.write_bytes(gzip.compress(content) if pack else content)
    assert bare(read_rows(file)) == rows


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.text(), st.text()), min_size=1))
def test_any_text_comes_back_from_a_csv(tmp_path_factory, cells):
    file = tmp_path_factory.mktemp("csv") / "rows.csv"
    cells = [tuple(c.replace("\r", "").replace("\0", "") for c in row) for row in cells]
    cells = [tuple(c.encode(errors="ignore").decode() for c in row) for row in cells]
    with file.open("w", encoding="utf-8", newline="") as opened:
        csv.writer(opened).writerows([("a", "b"), *cells])
    assert [(row["a"], row["b"]) for row in read_rows(file)] == cells


def test_a_byte_order_mark_and_the_line_ends_of_windows_are_no_text(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_bytes('\ufefftext,label\r\n"a\r\nb",1\r\n\r\nc,0\r\n'.encode())
    rows = read_rows(file)
    assert bare(rows) == [{"text": "a\r\nb", "label": "1"}, {"text": "c", "label": "0"}]
    assert [row["at"] for row in rows] == [f"{file}:2", f"{file}:5"]


def test_json_may_be_lines_too(tmp_path):
    file = tmp_path / "rows.json"
    file.write_text('{"text": "2012-01-01"}\n{"text": "2013-01-01"}\n')
    assert bare(read_rows(file)) == [{"text": "2012-01-01"}, {"text": "2013-01-01"}]


DAMAGED = {  # the file, its content, the message after its path
    "a cell too many": ("a.csv", b"text,label\nx,1\ny,2,3\n", ":3: 3 columns, the header has 2"),
    "in every line": ("a.csv", b"text,label\ny,2,3\n", ":2: 3 columns, the header has 2"),
    "a cell too few": ("a.csv", b"text,label\n\nx\n", ":3: 1 columns, the header has 2"),
    "after a long cell": ("a.csv", b'text,label\n"x\ny",1\nz\n', ":4: 1 columns"),
    "an open quote": ("a.csv", b'text,label\n"x,1\ny,2\n', ":2: unexpected end .*each quote close"),
    "a quote inside": ("a.csv", b'text,label\nx,1\n"y"z,2\n', ":3: .*each quote close"),
    "a name twice": ("a.csv", b"text,text\nx,1\n", ": its header names text more than once"),
    "a tab too few": ("a.tsv", b"text\tlabel\nx\n", ":2: 1 columns, the header has 2"),
    "no UTF-8": ("a.csv", "text\nGrüße\n".encode("latin-1"), ": 'utf-8' codec .* save it as UTF-8"),
    "no object": ("a.jsonl", b'{"text": "a"}\n7\n', ":2: not a JSON object"),
    "half an object": ("a.jsonl", b'{"text": "a"}\n{"text"', ":2: not a JSON object"),
    "half a list": ("a.json", b'[{"text": "a"}', ": no list of JSON objects"),
    "a list of numbers": ("a.json", b'[{"text": "a"}, 7]', " row 2: not a JSON object"),
    "no parquet": ("a.parquet", b"PAR1", ": "),
    "no gzip": ("a.csv.gz", b"text\nx\n", ": Not a gzipped file"),
    "half a gzip": ("a.csv.gz", gzip.compress(b"text\nx\n" * 99)[:-9], ": .*is it whole"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_what_is_damaged_is_named(tmp_path, case):
    name, content, message = DAMAGED[case]
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{file}{message}"):
        read_rows(file)
