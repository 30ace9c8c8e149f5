"""Every command of the pages, run in a small form: its words, less those that make it long.

The encoder is a random one, the data are 96 rows of the real layout, a run has two steps; folders
of somebody's own runs are one small run. Commands that become one command so are run once. What is
not run here is run in small by another test (`ELSEWHERE`); docs/extending.md, whose command needs
the files of the page, by tests/test_extension.py; `isotrain demo` by tests/test_demo.py.
"""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import datasets
import pytest
from huggingface_hub import HfApi
from omegaconf import OmegaConf

from isotrain import cli
from isotrain.config.compose import compose_run
from isotrain.config.shipped import names, plan_name
from isotrain.runner import run
from tests.analysis.annotated_rows import write_annotated
from tests.analysis.runs import SMALL
from tests.docs_pages import ACTIONS, ROOT, RUN, commands, write_files

# Warnings are of libraries, at first use.
pytestmark = [pytest.mark.campaign, pytest.mark.filterwarnings("default")]

TINY = ("encoder=tiny", "encoder.width=16", "source=local", "threads=1")
TRAIN = (
    *TINY,
    *("trainer.accelerator=cpu", "trainer.max_epochs=1", "trainer.max_steps=2"),
    "trainer.val_check_interval=1.0",
    *("data.batch_size=8", "data.eval_batch_size=32", "monitor.max_rows=64", "report=false"),
)
SWEEP = (*TRAIN, "seed=0", "site=[pooled]")
ANALYZE = (*TINY, "device=cpu")
FIGURE = (  # any value will do: what is tried is that it is looked for, and judged
    "{encoder: isotrain.encoders.tiny.build_tiny, where: {setting: none}, "
    "column: spearman, value: 0, tolerance: 1000, source: nobody}"
)
OF_ANALYSIS = {
    name: tuple(f"analysis.{key}={json.dumps(value)}" for key, value in small.items())
    for name, small in SMALL.items()
} | {
    "contextuality": ("analysis.max_rows=600", "analysis.words=[the]"),
    "offline_isotropy": (
        *("analysis.n_clusters=3", "analysis.n_components=1", "analysis.n_resamples=50"),
        *("analysis.sets=[stsb]", f"analysis.published=[{FIGURE}]"),
    ),
}
ELSEWHERE = {  # words of commands whose processes another test starts: which, and by what word
    "hydra/launcher=submitit_slurm": (
        *("tests/cluster/test_slurm.py", "hydra/launcher=submitit_slurm"),
    ),
    "trainer.devices=2": ("tests/training/test_processes.py", "trainer.devices=2"),
}
HUB = {"stanfordnlp/imdb": "text", "nyu-mll/glue": "sentence"}  # its column of texts
COMMANDS = {param.id: param.values[0] for param in commands()}


def elsewhere(words):
    return [test for word, test in ELSEWHERE.items() if word in words]


def with_own(words, small):
    """The words, but those of keys that `small` has, and `small`."""
    own = {text.partition("=")[0] for text in small}
    return [text for text in words if text.partition("=")[0] not in own] + list(small)


def is_sweep(words):
    """Whether its runs have values of the command line."""
    return "-m" in words and "study=smoke" not in words


def small_form(words):
    """The words of a short command, RUN in place of a folder of somebody's own."""
    command, *rest = (RUN.sub(r"\1RUN", text) for text in words)
    if command == "train" and "--cfg" not in rest:
        rest = [text for text in rest if not text.startswith("data.n_train=")]  # there are fewer
        return [command, *with_own(rest, SWEEP if is_sweep(rest) else TRAIN)]
    if command == "analyze" and "=" in rest[0]:
        own = OF_ANALYSIS[rest[0].removeprefix("analysis=")]
        if "analysis.static=glove" in rest:
            own += ("analysis.static=vectors.txt",)
        of_run = any(text.startswith("from_run=") for text in rest)  # which has an encoder
        given = [t for t in (*ANALYZE, *own) if not (of_run and t.startswith("encoder"))]
        return [command, *with_own(rest, given)]
    places = {"NAME": "contextuality", "DIR": "runs", "runs/wic": "runs"}
    return [command, *(places.get(text, text) for text in rest)]


ONCE = {  # by what is run: the first place where it stands
    tuple(small_form(words)): place
    for place, words in reversed(COMMANDS.items())
    if (words[0] not in ACTIONS or any(map(RUN.match, words))) and not elsewhere(words)
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_fixture_data):
    """Where commands are typed, with a finished run, a study and a search to be small."""
    place = tmp_path_factory.mktemp("commands")
    (place / "experiments").symlink_to(ROOT / "experiments")
    write_files(place)
    write_fixture_data(place / "data")
    write_annotated(place / "data")
    rows = [f"number {i},{i % 2},number {i},{i % 2}" for i in range(120)]
    (place / "reviews.csv").write_text("\n".join(["text,label,review,verdict", *rows]))
    vectors = [f"{word} {i} {i * i % 7} 1" for i, word in enumerate(("the", "a", "of", "in", "is"))]
    (place / "vectors.txt").write_text("\n".join(vectors))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("ISOTRAIN_DATA_DIR", str(place / "data"))
        overrides = [*TRAIN, "task=rte", "isotropy=zca"]
        run(compose_run(overrides), overrides)  # which `isotrain evaluate` composes again
    return place


def of_hub(really):
    """`load_dataset` that has these data sets of the hub, which is not asked."""

    def load_dataset(path, *args, **options):
        if path not in HUB:
            return really(path, *args, **options)
        parts = {"train": 64, "validation": 32, "test": 32}
        return {
            part: [{HUB[path]: f"{part} number {i}", "label": i % 2} for i in range(n)]
            for part, n in parts.items()
        }

    return load_dataset


@pytest.fixture
def typed(folder, monkeypatch, capsys):
    """`typed("doctor")`: what a command prints, which must end with exit code 0."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(folder / "data"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    (made,) = folder.glob("runs/rte/zca-*")
    monkeypatch.setattr(HfApi, "dataset_info", lambda *_, **__: SimpleNamespace(sha="a" * 40))
    monkeypatch.setattr(datasets, "load_dataset", of_hub(datasets.load_dataset))

    def call(*words):
        words = [re.sub(r"\bRUN$", str(made.relative_to(folder)), text) for text in words]
        code = cli.main(words)
        message = capsys.readouterr()
        assert code == 0, message.err
        return message.out

    return call


def test_what_is_run_elsewhere_is_named_there():
    away = [words for words in COMMANDS.values() if elsewhere(words)]
    assert len(away) == len(ELSEWHERE)
    for words in away:
        ((file, word),) = elsewhere(words)
        assert word in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("words", [pytest.param(w, id=place) for w, place in ONCE.items()])
def test_a_command_does_what_it_says(words, typed, folder):
    before = set(folder.rglob("result.json"))
    message = typed(*words)
    assert message.strip()
    made = [json.loads(file.read_text()) for file in set(folder.rglob("result.json")) - before]
    assert all(result.get("status", "finished") == "finished" for result in made)
    if is_sweep(words) and "hydra/sweeper=basic" not in words:
        assert re.search(
            r"^sweep \S+: [1-4] runs?, .*\bstudy\.html$", message, re.DOTALL | re.MULTILINE
        )
    elif words[0] == "train" and "--cfg" not in words:
        assert made or "finished before" in message  # a page may say it with another folder of data


def group_of(name):
    is_search = name in names("searches") or name.endswith(("search.yaml", "best.yaml"))
    return "searches" if is_search else "studies"


def several(group):
    """The commands of studies or searches, each once, in the order in which one would type them."""
    found = {
        tuple(words)
        for words in COMMANDS.values()
        if words[0] in ACTIONS
        and len(words) > 1
        and not any(map(RUN.match, words))
        and group_of(words[1]) == group
    }
    return sorted(found, key=lambda words: (ACTIONS.index(words[0]), words))


def shorter(group, name, folder):
    """The file of a study or search, with one task and seed, or trial, and its name."""
    content = OmegaConf.to_container(OmegaConf.load(ROOT / "conf" / group / f"{name}.yaml"))
    content["seeds"] = content["seeds"][:1]
    if group == "studies":
        first = next(iter(content["tasks"]))
        content["tasks"] = {first: content["tasks"][first]}
    else:
        content["n_trials"] = 1
    OmegaConf.save(OmegaConf.create(content), folder / f"{name}.yaml")
    return f"{name}.yaml"


@pytest.mark.parametrize(
    ("group", "ended"),
    [
        ("studies", r"\b(\d) runs, \1 finished|\bstudy\.html$"),
        ("searches", r"1 (of 1 )?trials?.* 1 (complete|degenerate)"),
    ],
)
def test_studies_and_searches_run_and_are_reported(group, ended, typed, folder):
    """As they are shipped they are listed, and so planned; the one with a report is run, cut short.

    Runs that fail, are stopped and go on: tests/studies.
    """
    shown = {words[1] for words in several(group) if words[0] in ("status", "report")}
    for action, name, *options in several(group):
        keys = [text for text in options if "=" in text]
        here = ("encoder=tiny", "source=demo")  # a search looks for them before it is shown
        if name.startswith("experiments/"):
            assert action == "run"
            if "init_from=" in (ROOT / name).read_text():
                continue  # of runs that the page makes, which are others in small
            given = [text for text in options if text not in ("-j", "2")]
            page = (folder / Path(name).with_name("README.md")).read_text()
            own = re.search(r"\bPYTHONPATH=(\S+)", page)
            with pytest.MonkeyPatch.context() as patch:
                if own:  # layers of its own
                    patch.syspath_prepend(folder / own[1])
                    for file in (folder / own[1]).glob("*.py"):
                        sys.modules.pop(file.stem, None)  # of another experiment
                assert plan_name(name) in typed("run", name, "--list", *given)
        elif action == "run":
            k = options.index("--launcher") if "--launcher" in options else len(options)
            own = options[k : k + 2]
            assert plan_name(name) in typed("run", name, "--list", *own, *with_own(keys, here))
        if name in shown & {*names(group)} and "--list" not in options:
            file = shorter(group, name, folder)
            message = typed(
                action, file, *(with_own(options, TRAIN) if action == "run" else options)
            )
            assert re.search(ended, message, re.MULTILINE), message
    assert shown
