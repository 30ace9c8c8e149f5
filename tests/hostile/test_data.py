"""Two hundred damaged data files, as the local source and the tasks read them, in one process."""

import json
import shutil

import pytest

from isotrain.console import printable
from isotrain.tasks.data.sources import LocalSource
from isotrain.tasks.wic import WiC
from tests.hostile.harness import RAW, End, draw, judged
from tests.parts import RTE, SNLI, STSB

pytestmark = pytest.mark.campaign
TASKS = {"wic": WiC, "rte": RTE, "stsb": STSB, "snli": SNLI}
OTHERS = (5, [], {}, [["x"]], True, None, {"a": None})  # no text
NO_LABELS = (17, -5, 1.5, "maybe", [], {}, [1], "1e9999", "NaN", "\x1b[31m", "", 10**30)
NO_SCORES = ("NaN", "inf", "", "x", [], {}, True, "1e9999", "0x3", float("nan"), float("-inf"))
NO_SCORES += (10**400, -0.1, 5.1, None, "9" * 5000)
NO_STARTS = (1, -1, 10**9, "four", 2.5, 10**400, "NaN", None, False)
ROWS = {  # what is done to one example; all but the last four must be rejected, with file and line
    "no text": lambda one, row, texts, target: {one.choice(texts): one.choice(OTHERS)},
    "a key lost": lambda one, row, texts, target: {one.choice(texts): None},
    "another target": lambda one, row, texts, target: {
        target: one.choice(NO_SCORES if target == "score" else NO_LABELS)
    },
    "another start": lambda one, row, texts, target: {
        f"start{one.choice('12')}": one.choice(NO_STARTS)
    },
    "half a word": lambda one, row, texts, target: {"end1": row["end1"] - one.choice((1, 2))},
    "a word and more": lambda one, row, texts, target: {
        "start2": row["start2"] - one.choice((1, 2))
    },
    "controls": lambda one, row, texts, target: {
        texts[-1]: row[texts[-1]] + "\x00\x1b[31m\u202e b \u2028 c"
    },
    "a long text": lambda one, row, texts, target: {texts[-1]: row[texts[-1]] + " ab" * 300_000},
    "one sentence": lambda one, row, texts, target: {} if "word" in row else {texts[-1]: ""},
    "keys of no use": lambda one, row, texts, target: {"\x1b[1m": {"a": [1]}, "at": "x:1"},
}
FREE = ("controls", "a long text", "one sentence", "keys of no use", "blank lines", "newlines")
LINES = {  # what is done to the text of one line
    "cut": lambda one, line: line[: one.randrange(1, len(line) - 1)],
    "no object": lambda one, line: one.choice(["[]", "1", "null", '"x"', "NaN", f"[{line}]", "{}"]),
    "5,000 digits": lambda one, line: line[:-1] + ', "more": ' + "9" * 5000 + "}",
    "two objects": lambda one, line: line + " " + line,
    "single quotes": lambda one, line: line.replace('"', "'"),
    "blank lines": lambda one, line: line + "\n\n \n",
    "newlines": lambda one, line: line + "\r",
}
FILES = {  # what is done to all bytes; they must be rejected
    "empty": lambda one, data: b"",
    "no UTF-8": lambda one, data: data[:9] + one.choice([b"\xff\xfe", b"\xc0\x80"]) + data[9:],
    "zeros": lambda one, data: bytes(len(data)),
    "noise": lambda one, data: one.randbytes(5000),
    "UTF-16": lambda one, data: data.decode().encode("utf-16"),
    "carriage returns alone": lambda one, data: data.replace(b"\n", b"\r"),
    "two marks of order": lambda one, data: b"\xef\xbb\xbf" * 2 + data,
    "cut": lambda one, data: data[: len(data) // 2 + 7],
}
TABLES = {  # of a tsv: header and line
    "a column more": lambda one, head, line: (head, line + "\tx"),
    "a column less": lambda one, head, line: (head, line.rpartition("\t")[0]),
    "no header": lambda one, head, line: (line, line),
}
KINDS = (ROWS, LINES, FILES, TABLES)
ALL = [(kind, what) for kind in KINDS for what in kind]


@pytest.fixture(scope="module")
def data(write_fixture_data, tmp_path_factory):
    return write_fixture_data(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("number", range(200))
def test_a_damaged_file(number, data, tokenizer, tmp_path, record_property):
    one = draw("data", number)
    kind, what = ALL[number % len(ALL)]
    spans = ("another start", "half a word", "a word and more")
    name = "wic" if what in spans else one.choice(list(TASKS))
    split, folder = one.choice(("train", "dev")), tmp_path / name
    shutil.copytree(data / name, folder)
    file = folder / f"{split}.jsonl"
    lines = file.read_text().splitlines()
    at, row = one.randrange(len(lines)), json.loads(lines[0])
    texts = [key for key in row if key.startswith(("sentence", "premise", "hypothesis"))]
    target = "score" if "score" in row else "label"
    if kind is ROWS:
        row = json.loads(lines[at])
        lines[at] = json.dumps(row | ROWS[what](one, row, texts, target))
    elif kind is LINES:
        lines[at] = LINES[what](one, lines[at])
    elif kind is TABLES:
        rows = ["\t".join(map(str, json.loads(line).values())) for line in lines]
        head, rows[at] = TABLES[what](one, "\t".join(row), rows[at])
        file.unlink()
        file, lines, at = file.with_suffix(".tsv"), [head, *rows], at + 1
    content = "\n".join(lines).encode(errors="surrogateescape") + b"\n"
    file.write_bytes(FILES[what](one, content) if kind is FILES else content)
    task = TASKS[name]()
    try:
        rows = task.load(LocalSource(str(tmp_path)))
        task.encode(rows[split], tokenizer)
        end = End("ran" if what in FREE else "silent", "accepted", 0)
    except ValueError as error:
        text = printable(str(error))
        place = f"{file}:{at + 1}: " if kind in (ROWS, LINES) else f"{name}"
        is_named = place in text and what not in FREE and len(text) < 1000
        end = End("rejected" if is_named and not set(RAW) & set(text) else "silent", text, 2)
    except Exception as error:
        end = End("traceback", f"{type(error).__name__}: {error}", 70)
    judged(record_property, f"{what} in {file.name}:{at + 1} of {name}: {lines[at][:300]!a}", end)
