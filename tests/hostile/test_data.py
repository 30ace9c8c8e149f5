"""Two hundred damaged data files, as the local source reads them."""

from __future__ import annotations

import json

import pytest

from tests.hostile.harness import TINY, draw, ended, judged

pytestmark = pytest.mark.campaign
LOCAL = tuple(text for text in TINY if not text.startswith("source="))
TEXTS = {
    **{"wic": ("sentence1", "sentence2"), "rte": ("sentence1", "sentence2")},
    **{"stsb": ("sentence1", "sentence2"), "snli": ("premise", "hypothesis")},
}
TARGET = {"wic": "label", "rte": "label", "stsb": "score", "snli": "label"}
OTHERS = (5, [], {}, [["x"]], True, {"a": None})  # where a text belongs
NO_LABELS = (17, -5, 1.5, "maybe", [], {}, [1], "1e9999", "NaN", "\x1b[31m", "", 10**30)
NO_SCORES = ("NaN", "inf", "", "x", [], {}, True, "1e9999", "0x3", float("nan"), float("inf"))


def without(row, key):
    return {name: value for name, value in row.items() if name != key}


ROWS = {  # what is done to one example; all but the last ones must be refused, with file and line
    "text of another type": lambda one, task, row: {
        **row,
        one.choice(TEXTS[task]): one.choice(OTHERS),
    },
    "a lone surrogate": lambda one, task, row: {**row, one.choice(TEXTS[task]): "a \ud800 b"},
    "two empty texts": lambda one, task, row: (
        row | dict.fromkeys(TEXTS[task], one.choice(["", " \t"]))
    ),
    "a key lost": lambda one, task, row: without(row, one.choice([TARGET[task], *TEXTS[task]])),
    "another target": lambda one, task, row: {
        **row,
        TARGET[task]: one.choice(NO_SCORES if task == "stsb" else NO_LABELS),
    },
    "a wrong span": lambda one, task, row: {
        **row,
        f"start{one.choice((1, 2))}": one.choice((0, -1, 10**9, "4", 2.5)),
    },
    "an end of its own": lambda one, task, row: {
        **row,
        f"end{one.choice((1, 2))}": one.choice((0, -1, 10**9, 10**400)),
    },
    "control characters": lambda one, task, row: {**row, TEXTS[task][0]: "a \x00\x1b[31m\u202e b"},
    "a long text": lambda one, task, row: {**row, TEXTS[task][0]: "ab " * 300_000},
    "keys of no use": lambda one, task, row: {**row, "\x1b[1m": {"a": [1]}, "at": "elsewhere:1"},
}
FREE = ("control characters", "a long text", "keys of no use")
LINES = {  # what is done to the text of one line
    "cut": lambda one, line: line[: one.randrange(1, len(line) - 1)],
    "no object": lambda one, line: one.choice(
        ("[]", "1", "null", '"x"', "NaN", "{}", "[" + line + "]")
    ),
    "nested brackets": lambda one, line: one.choice(
        (
            "[" * 100_000,
            '{"a":' * 100_000,
            line[:-1] + ', "x": ' + "[" * 100_000 + "]" * 100_000 + "}",
        )
    ),
    "a doubled key": lambda one, line: "{" + '"label": 0, "score": 1.0, ' + line[1:],
    "400 digits": lambda one, line: (
        line[:-1] + ', "score": ' + "9" * one.choice((400, 5000)) + ', "idx": 1}'
    ),
    "two objects": lambda one, line: line + " " + line,
    "single quotes": lambda one, line: line.replace('"', "'"),
    "bytes that are no UTF-8": lambda one, line: (
        line.encode()[:9] + b"\xff\xfe" + line.encode()[9:]
    ),
}
FILES = {  # what is done to all bytes, and whether they must be refused
    "empty": (lambda one, data: b"", True),
    "zeros": (lambda one, data: bytes(len(data)), True),
    "noise": (lambda one, data: one.randbytes(5000), True),
    "UTF-16": (lambda one, data: data.decode().encode("utf-16"), True),
    "blank lines": (lambda one, data: data.replace(b"\n", b"\n\n \n"), False),
    "carriage returns": (lambda one, data: data.replace(b"\n", b"\r\n"), False),
    "a byte order mark": (lambda one, data: b"\xef\xbb\xbf" + data, False),
    "cut": (lambda one, data: data[: len(data) // 2 + 7], None),
}
HEADERS = {  # of a tsv
    "a column more": lambda one, head, line: (head, line + "\tx"),
    "a column less": lambda one, head, line: (head, line.rpartition("\t")[0]),
    "a doubled name": lambda one, head, line: (head + "\tlabel\tscore", line + "\t0\t1.0"),
    "no header": lambda one, head, line: (line, line),
    "a score of words": lambda one, head, line: (head, line.rpartition("\t")[0] + "\tx"),
}


@pytest.mark.parametrize("number", range(200))
def test_a_damaged_file(number, write_fixture_data, tmp_path, record_property):
    one = draw("data", number)
    data, place = tmp_path / "data", tmp_path / "place"
    place.mkdir()
    write_fixture_data(data)
    task, split = one.choice(list(TEXTS)), one.choice(("train", "dev"))
    file = data / task / f"{split}.jsonl"
    lines = file.read_text().splitlines()
    at, must = one.randrange(len(lines)), True
    kind = one.choices((ROWS, LINES, FILES, HEADERS), (10, 6, 3, 2))[0]
    what = one.choice([*kind])
    if kind is ROWS:
        if what in ("a wrong span", "an end of its own"):
            task, file = "wic", data / "wic" / f"{split}.jsonl"
            lines = file.read_text().splitlines()
        lines[at] = json.dumps(ROWS[what](one, task, json.loads(lines[at])))
        must = what not in FREE
    elif kind is LINES:
        changed = LINES[what](one, lines[at])
        must = what != "400 digits" or task == "stsb"
        must &= what != "a doubled key" or task != "stsb" or changed.count('"score"') > 1
        lines[at] = changed
    elif kind is HEADERS:
        rows = [json.loads(line) for line in lines]
        head = "\t".join(rows[0])
        lines = ["\t".join(map(str, row.values())) for row in rows]
        file.unlink()
        file, at = file.with_suffix(".tsv"), at + 1
        head, lines[at - 1] = HEADERS[what](one, head, lines[at - 1])
        lines = [head, *lines]
        must = what != "a score of words" or task != "snli"
    encoded = [line if isinstance(line, bytes) else line.encode() for line in lines]
    content = b"\n".join(encoded) + b"\n"
    if kind is FILES:
        change, must = FILES[what]
        content = change(one, content)
    file.write_bytes(content)
    overrides = [f"task={task}", *LOCAL, "source=local", f"source.root={data}", "output_dir=out"]
    end = ended(["train", *overrides], place)
    if (
        must
        and kind in (ROWS, LINES)
        and end.kind == "refused"
        and f"{file}:{at + 1}" not in end.text
    ):
        end = end._replace(kind="silent")
    line = ascii(encoded[at])[:300] if kind in (ROWS, LINES) else ""
    judged(
        record_property,
        f"{what} in {file.name}:{at + 1} of {task} {line}",
        end,
        must and "accepted",
    )
