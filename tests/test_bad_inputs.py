"""Bad inputs of `isotrain train`: exit code 2, the words of the case, no trace, nothing written.

One case for each place that rejects; the rules themselves have their tests in tests/config/. All
in one process; one case is given to the program in a process of its own.
"""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import huggingface_hub.constants
import pytest

from isotrain import cli

ROOT = Path(__file__).parents[1]
SHARED = ("encoder=tiny", "source=demo")  # so that only the intended error shows
UNSET = (  # of the environment: what would change an answer
    *("ISOTRAIN_DATA_DIR", "ISOTRAIN_ALLOW", "HYDRA_FULL_ERROR", "HF_HOME", "HF_HUB_CACHE"),
    *("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_DATASETS_CACHE", "TRANSFORMERS_OFFLINE"),
)


class Case(NamedTuple):
    """One bad input; `{files}` in arguments and environment is the folder of its files."""

    given: tuple[str, ...]  # arguments after `isotrain train`, besides SHARED
    said: tuple[str, ...]  # what the answer must contain
    environment: Mapping[str, str] = {}
    files: Mapping[str, str] = {}
    about: str = ""  # what is wrong with the files


GOOD = {
    **{"word": "bank", "sentence1": "The bank.", "start1": 4, "end1": 8},
    **{"sentence2": "A bank too.", "start2": 2, "end2": 6, "label": True},
}
ROWS = f"{json.dumps(GOOD)}\n" * 2  # of WiC


CASES: tuple[Case, ...] = (
    Case(
        ("optimzer.lr=1", "task=sickq"),
        (
            "no key optimzer.lr; did you mean optimizer.lr?",
            "task=sickq does not exist; did you mean sickr?",
        ),
    ),
    # Commands
    Case(("seed",), ("Error parsing override 'seed'",)),
    # Several at once
    Case(
        ("sede=1", "task=wicc", "data.bach_size=0", "seed=x"),
        (
            *("did you mean seed?", "did you mean wic?", "did you mean data.batch_size?"),
            "seed=x: Value 'x'",
        ),
    ),
    Case(
        ("data.batch_size=0", "+modle=bert"),
        ("data.batch_size must be at least 1", "a run has no key modle"),
    ),
    # Parts that do not go together
    Case(
        ("task=stsb", "objective=[supcon]"),
        ("objective=supcon compares classes, and labels of task=stsb are scores", "leave it out"),
    ),
    # Changes of the training rows
    Case(
        ("task=stsb", "data.label_skew=0.5"),
        ("data.label_skew is of classes", "task=stsb has none"),
    ),
    # What no signature tells: the libraries reject these with errors of their own
    Case(("trainer.accelerator=gpuu",), ("accelerator", "gpuu")),
    Case(("trainer.precision=18",), ("precision", "18")),
    # What a run reads
    Case(
        (*("freezing=gradual", "training.reinit_blocks=2", "trainer.max_epochs=1"),),
        ("training.reinit_blocks=2", "optimizer steps freezing leaves", "block 1 untrained"),
    ),
    Case(("source=local",), ("source.root: ", "ISOTRAIN_DATA_DIR", "set it, or source.root=")),
    Case(
        ("source=local",),
        ("looked for {files}/wic", "wic/train.jsonl", "source=hub or source=demo"),
        {"ISOTRAIN_DATA_DIR": "{files}"},
    ),
    Case(
        ("source=hub", "task=stsb"),
        ("mteb/stsbenchmark-sts", "offline mode is enabled"),
        {"HF_HUB_OFFLINE": "1", "HF_HOME": "{files}"},
    ),
    Case(
        ("encoder=bert_base",),
        ("bert-base-uncased' is neither on disk nor reachable", "run once with network access"),
        {"HF_HUB_OFFLINE": "1", "HF_HOME": "{files}"},
    ),
    Case(
        ("init_from={files}",),
        (
            "init_from={files}: no result.json of a training run in {files}",
            "the folder of a finished run",
        ),
        files={"metrics.jsonl": ""},
        about="a folder that is no run",
    ),
    Case(
        ("source=local",),
        ("{files}/wic/train.jsonl:3: not a JSON object",),
        {"ISOTRAIN_DATA_DIR": "{files}"},
        {"wic/train.jsonl": ROWS + '{"word": "bank", ', "wic/dev.jsonl": ROWS},
        about="half a row",
    ),
    # Where a run writes
    Case(
        ("output_dir={files}/taken",),
        ("cannot write to {files}/taken; give another folder with output_dir=",),
        files={"taken": "a file, not a folder"},
        about="a file stands there",
    ),
)


def shown(case: Case) -> str:
    """The name of a case."""
    changes = [f"{name}={value}" for name, value in case.environment.items()]
    words = " ".join([*changes, *map(shlex.quote, case.given)])
    return f"{words} ({case.about})" if case.about else words


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Tokenised data are no record of a run, and are shared."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def asked(tmp_path, monkeypatch, cache):
    """`asked(case)`: the arguments, in an empty folder with files and environment of the case."""
    files, place = tmp_path / "files", tmp_path / "place"
    files.mkdir()
    place.mkdir()
    monkeypatch.chdir(place)
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)

    def prepare(case):
        for name, content in case.files.items():
            path = files / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        for name, value in case.environment.items():
            monkeypatch.setenv(name, value.replace("{files}", str(files)))
        own = {text.partition("=")[0] for text in case.given}
        shared = [
            text for text in (*SHARED, f"cache_dir={cache}") if text.partition("=")[0] not in own
        ]
        return [*shared, *(text.replace("{files}", str(files)) for text in case.given)]

    return prepare


def contents(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.parametrize("case", CASES, ids=shown)
def test_a_bad_input_is_rejected_in_words(case, asked, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    arguments, before = asked(case), contents(tmp_path)
    code = cli.main(["train", *arguments])
    printed = capsys.readouterr()
    message = printed.out + printed.err
    assert code == 2, message
    assert "Traceback" not in message
    for words in case.said:
        assert words.replace("{files}", str(tmp_path / "files")) in message
    assert contents(tmp_path) == before


def test_a_process_ends_with_code_2_and_all_errors(asked, tmp_path):
    (case,) = [case for case in CASES if case.given[:2] == ("sede=1", "task=wicc")]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "isotrain", "train", *asked(case)]
    before = contents(tmp_path)
    found = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}
    )
    assert found.returncode == 2, found.stderr
    assert found.stderr.startswith("isotrain: this cannot run\n  ")
    assert all(words in found.stderr for words in case.said)
    assert contents(tmp_path) == before
