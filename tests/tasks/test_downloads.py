"""Folders as GLUE and SuperGLUE are downloaded: read as they are, every wrong line named."""

import json
import re
import shutil

import pytest

from isotrain.tasks.data.sources import LocalSource
from isotrain.tasks.wic import WiC
from tests.parts import RTE, STSB

STSB_NAMES = "index genre filename year old_index source1 source2 sentence1 sentence2 score"


def tsv(*lines):
    return "".join("\t".join(line) + "\n" for line in lines)


def glue_rte(split):
    labels = [] if split == "test" else ["label"]
    rows = [["0", 'He said "no.', "He said no."], ["1", "It's 5\" long", '"quoted"']]
    gold = [["entailment"], ["not_entailment"]]
    return tsv(
        ["index", "sentence1", "sentence2", *labels],
        *(row + (label if labels else []) for row, label in zip(rows, gold, strict=True)),
    )


def glue_stsb(split):
    names = STSB_NAMES.split()[: 9 if split == "test" else 10]
    start = ["0", "news", "file", "2012", "7", "a", "b", 'A "plane', "A jet", "4.500"]
    return tsv(names, start[: len(names)], ["1", *start[1 : len(names)]])


def lines_of(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def superglue_rte(split):
    rows = [
        {"premise": "P1", "hypothesis": "H1", "label": "not_entailment", "idx": 0},
        {"premise": "P2", "hypothesis": "H2", "label": "entailment", "idx": 1},
    ]
    if split == "test":
        rows = [{k: v for k, v in row.items() if k != "label"} for row in rows]
    return lines_of(*rows)


WIC = {"word": "bank", "sentence1": "A bank.", "sentence2": "Bank on it", "idx": 0}
WIC |= {"start1": 2, "end1": 6, "start2": 0, "end2": 4, "version": 1.1}


def superglue_wic(split):
    if split == "test":
        return lines_of(WIC, WIC)
    return lines_of({**WIC, "label": True}, {**WIC, "label": False})


def write_folder(folder, text_of, names):
    folder.mkdir(parents=True)
    for split, name in zip(("train", "dev", "test"), names, strict=True):
        (folder / name).write_text(text_of(split), encoding="utf-8")
    return folder


GLUE = ("train.tsv", "dev.tsv", "test.tsv")
SUPERGLUE = ("train.jsonl", "val.jsonl", "test.jsonl")
DOWNLOADS = {
    "glue rte": (RTE, "RTE", glue_rte, GLUE, [0, 1]),
    "glue stsb": (STSB, "STS-B", glue_stsb, GLUE, [4.5, 4.5]),
    "superglue rte": (RTE, "RTE", superglue_rte, SUPERGLUE, [1, 0]),
    "superglue wic": (WiC, "WiC", superglue_wic, SUPERGLUE, [1, 0]),
}


@pytest.mark.parametrize("kind", DOWNLOADS)
def test_a_download_is_read_as_it_is(tmp_path, tokenizer, kind):
    task, name, text_of, names, gold = DOWNLOADS[kind]
    folder = write_folder(tmp_path / name, text_of, names)
    source, data_set = LocalSource(str(tmp_path)), task().data_set
    assert source.missing(data_set) is None
    splits = task().load(source)
    assert splits["test"] == []
    for split, file in zip(("train", "dev"), names[:2], strict=True):
        rows = splits[split]
        assert [row[data_set.target] for row in rows] == gold
        offset = 2 if file.endswith("tsv") else 1
        assert [row["at"] for row in rows] == [f"{folder / file}:{i + offset}" for i in (0, 1)]
        for row in rows:
            assert {f: type(row[f]) for f in data_set.fields} == dict(data_set.fields)
    assert len(task().encode(splits["train"], tokenizer)) == 2


def test_quotes_in_a_tsv_are_characters(tmp_path):
    write_folder(tmp_path / "RTE", glue_rte, GLUE)
    rows = RTE().load(LocalSource(str(tmp_path)))["dev"]
    assert [(row["sentence1"], row["sentence2"]) for row in rows] == [
        ('He said "no.', "He said no."),
        ("It's 5\" long", '"quoted"'),
    ]


def test_only_line_feeds_end_a_line(tmp_path):
    folder = write_folder(tmp_path / "RTE", glue_rte, GLUE)
    text = "\ufefflabel\tsentence1\tsentence2\r\nentailment\ta\rb\u2028c\x85\td\r\n"
    (folder / "dev.tsv").write_bytes(text.encode())
    (row,) = RTE().load(LocalSource(str(tmp_path)))["dev"]
    assert (row["sentence1"], row["label"]) == ("a\rb\u2028c\x85", 0)


def test_the_first_folder_wins_and_jsonl_before_tsv(tmp_path, data_dir):
    source = LocalSource(str(tmp_path))
    folder = write_folder(tmp_path / "RTE", glue_rte, GLUE)
    assert len(RTE().load(source)["train"]) == 2
    for name, text in zip(SUPERGLUE, map(superglue_rte, ("train", "dev", "test")), strict=True):
        (folder / name).write_text(text)
    splits = RTE().load(source)
    assert {row["at"] for row in splits["dev"]} == {f"{folder / 'val.jsonl'}:{i}" for i in (1, 2)}
    assert [row["sentence1"] for row in splits["train"]] == ["P1", "P2"]
    (folder / "dev.jsonl").write_text(superglue_rte("dev") * 2)
    assert len(RTE().load(source)["dev"]) == 4
    shutil.copytree(data_dir / "rte", tmp_path / "rte", dirs_exist_ok=True)
    assert len(RTE().load(source)["train"]) == 96


def test_what_is_missing_is_said_without_reading(tmp_path):
    folder = write_folder(tmp_path / "STS-B", glue_stsb, GLUE)
    source = LocalSource(str(tmp_path))
    for file in GLUE:
        (folder / file).write_bytes(b"\xff no text at all")
    assert source.missing(STSB().data_set) is None
    (folder / "test.tsv").unlink()
    assert source.missing(STSB().data_set) is None
    (folder / "dev.tsv").unlink()
    for name in ("dev.jsonl", "val.jsonl", "dev.tsv", "val.tsv"):
        assert str(folder / name) in source.missing(STSB().data_set)
    assert "train" not in source.missing(STSB().data_set).partition(";")[0]


BROKEN = {
    "too few columns": (RTE, "1\ta\tb", r":4: 3 columns, the header has 4 \(index, sentence1"),
    "a class too many": (
        RTE,
        "1\ta\tb\t2",
        ":4: label: must be one of entailment, not_entailment, or a number below 2, got '2'",
    ),
    "hidden in train": (RTE, "1\ta\tb\t-1", ":4: label: .* got '-1'"),
    "above the scale": (STSB, "1\t\t\t\t\t\t\ta\tb\t5.1", ":4: score must lie in 0 to 5, got 5.1"),
    "below the scale": (STSB, "1\t\t\t\t\t\t\ta\tb\t-0.1", ":4: score must lie in 0 to 5"),
    "no finite number": (
        STSB,
        "1\t\t\t\t\t\t\ta\tb\tnan",
        ":4: score: must be a number, got 'nan'",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_malformed_line_of_a_tsv_is_named(tmp_path, case):
    task, line, message = BROKEN[case]
    text_of, name = {RTE: (glue_rte, "RTE"), STSB: (glue_stsb, "STS-B")}[task]
    path = write_folder(tmp_path / name, text_of, GLUE) / "train.tsv"
    header, first, *_ = path.read_text().splitlines()
    path.write_text("\n".join([header, first, "", line]) + "\n")
    with pytest.raises(ValueError, match=re.escape(str(path)) + message):
        task().load(LocalSource(str(tmp_path)))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("sentence1", 7, "sentence1: .* valid string, got 7"),
        ("start1", "two", "start1: .* valid integer, .* got 'two'"),
        ("label", "true", "label: must be one of False, True, or a number below 2, got 'true'"),
        ("start1", -1, r"start1 and end1 must be .*sentence1 \(0 to 7, .* got -1 and 6"),
        ("end2", 0, r"start2 and end2 must be .*sentence2 \(0 to 10, .* got 0 and 0"),
        ("end1", 8, r"start1 and end1 must be .* got 2 and 8 \(''\)"),  # sentence1 ends before
        ("end1", 5, r"start1 and end1 must be .* whole words .* got 2 and 5 \('ban'\)"),
        ("start1", 3, r"start1 and end1 must be .* whole words .* got 3 and 6 \('ank'\)"),
        ("start1", 1, r"start1 and end1 must be .* got 1 and 6 \(' bank'\)"),
    ],
)
def test_a_wrong_value_in_json_is_named(tmp_path, field, value, message):
    path = write_folder(tmp_path / "WiC", superglue_wic, SUPERGLUE) / "val.jsonl"
    good = {**WIC, "label": True}
    path.write_text(lines_of(good, {**good, field: value}))
    with pytest.raises(ValueError, match=rf"val\.jsonl:2: {message}"):
        WiC().load(LocalSource(str(tmp_path)))


@pytest.mark.parametrize(
    ("word", "sentence", "form"),
    [
        *(("be", "I am here.", "am"), ("have", "I've got it", "'ve"), ("do", "He don't", "do")),
        *(("anfangen", "Es fängt an.", "fängt"), ("übergehen", "Er ging über", "ging")),
        *(("학교", "나는 학교에 간다", "학교"), ("银行", "我去银行取钱", "银行")),
        *(("carry out", "He carried it out", "carried it out"), ("école", "l'école", "école")),
    ],
)
def test_a_target_of_any_language_and_form_is_read(tmp_path, word, sentence, form):
    """Whose form a span holds is not judged: forms share no letter with their word."""
    start = sentence.index(form)
    row = WIC | {"word": word, "sentence1": sentence, "start1": start, "end1": start + len(form)}
    path = write_folder(tmp_path / "WiC", superglue_wic, SUPERGLUE) / "val.jsonl"
    path.write_text(lines_of({**row, "label": True}), encoding="utf-8")
    assert [one["word"] for one in WiC().load(LocalSource(str(tmp_path)))["dev"]] == [word]
