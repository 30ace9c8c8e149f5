"""Shared fixtures: a small data folder in the real layout, configurations, and built runs."""

import hashlib
import json
import os
import random
import subprocess
import time
from collections import Counter

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers or datasets is imported
os.environ.pop("WANDB_API_KEY", None)

import pytest
import torch
from hypothesis import settings

from tests.compositions import composed_once, files_are_merged_once

# Tiny tensors: two threads only wait for each other. Set the variable to test with more.
torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))

# The same examples every time, so that a failure is a change; --hypothesis-seed draws others.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("drawn", deadline=None)
settings.load_profile("repeatable")

SIZES = {"train": 96, "dev": 32, "test": 32}
ANIMALS = ("dog", "cat", "horse", "bird")
ADJECTIVES = ("old", "small", "red", "quiet")
VERBS = ("sees", "follows", "likes")
PLACES = ("near the bank", "at the bank", "by the old bank", "behind the big bank")


def wait_until(condition):
    """Wait for something another process does."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def eventually():
    """`wait_until`."""
    return wait_until


GO_ON = []  # the file of `--go-on`


def pytest_configure(config):
    if config.getoption("--go-on"):
        GO_ON.append(passed_file(config))
    if config.getoption("--hypothesis-seed") is not None:
        settings.load_profile("drawn")


def pytest_addoption(parser):
    parser.addoption(
        "--sample", type=int, metavar="N", help="N tests, of as many files, drawn by the commit"
    )
    parser.addoption(
        "--go-on", action="store_true", help="leave out what has passed at this state of the code"
    )


def passed_file(config):
    """Where `--go-on` notes the tests that passed: a file for every state of the checkout."""
    state = hashlib.sha256()
    for command in (["git", "rev-parse", "HEAD"], ["git", "diff", "HEAD"]):
        state.update(subprocess.run(command, capture_output=True, check=True).stdout)
    return config.rootpath / ".campaign" / f"{state.hexdigest()[:16]}.txt"


def pytest_runtest_logreport(report):
    """Note a test that passed, once for all worker processes."""
    if (
        report.when == "call"
        and report.passed
        and GO_ON
        and "PYTEST_XDIST_WORKER" not in os.environ
    ):
        GO_ON[0].parent.mkdir(exist_ok=True)
        with GO_ON[0].open("a", encoding="utf-8") as file:
            file.write(report.nodeid + "\n")


def pytest_sessionfinish(session, exitstatus):
    """Nothing left to go on with is no failure."""
    if GO_ON and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(trylast=True)  # behind -m, which selects what is drawn from
def pytest_collection_modifyitems(config, items):
    """Draw a sample, or go on. Tests of real data need their folder, those of a GPU one."""
    if GO_ON and GO_ON[0].is_file():
        passed = set(GO_ON[0].read_text(encoding="utf-8").splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]
    n = config.getoption("--sample")
    if n is not None and n < len(items):
        commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, check=True)
        drawn, n_of = [], Counter()
        for item in random.Random(commit.stdout).sample(items, len(items)):
            drawn.append((n_of[item.path], item))  # the first of every file before any second
            n_of[item.path] += 1
        drawn = {item for _, item in sorted(drawn, key=lambda pair: pair[0])[:n]}
        config.hook.pytest_deselected(items=[item for item in items if item not in drawn])
        items[:] = [item for item in items if item in drawn]
    if not os.environ.get("ISOTRAIN_DATA_DIR"):
        for item in items:
            if item.get_closest_marker("real_data"):
                item.add_marker(pytest.mark.skip(reason="ISOTRAIN_DATA_DIR is not set"))


def write_data(root, seed=0):
    """Data sets of 96/32/32 rows each under `root`, with the fields of the real sets.

    As in the real files, the test labels of rte are hidden (−1) and those of the others are not.
    Of wikitext-2 every fourth line is blank, and every fourth a heading.
    """
    rng = random.Random(seed)

    def sentence():
        first, second = rng.sample(ANIMALS, 2)
        tail = " ".join(f"and the {rng.choice(ANIMALS)}" for _ in range(rng.randrange(3)))
        text = f"The {rng.choice(ADJECTIVES)} {first} {rng.choice(VERBS)} the {second} {tail}"
        return text.strip() + "."

    def rte(i, split):
        label = -1 if split == "test" else i % 2
        return {"sentence1": sentence(), "sentence2": sentence(), "label": label, "idx": i}

    def wic(i, split):
        row = {"word": "bank"}
        for number in "12":
            text = f"{sentence()[:-1]} {rng.choice(PLACES)}{rng.choice(['.', ' today.'])}"
            start = text.index("bank")
            row |= {"sentence" + number: text, "start" + number: start, "end" + number: start + 4}
        return row | {"label": bool(i % 2), "idx": i, "pos": "N"}

    def stsb(i, split):
        score = round(rng.uniform(0, 5), 2)
        rest = {"genre": "main-captions", "file": "fixture", "year": "2012test", "id": f"{i:04}"}
        return {"sentence1": sentence(), "sentence2": sentence(), "score": score, **rest}

    def snli(i, split):
        kind = ("entailment", "neutral", "contradiction")[i % 3]
        premise = f"The {ANIMALS[i // 3 % 4]} {VERBS[i // 12 % 3]} {split} {i // 36}."
        return {"premise": premise, "hypothesis": sentence(), "label": i % 3, "label_text": kind}

    def wikitext(i, split):
        if i % 4 < 2:
            return (" ", f" = = Part {i} = = ")[i % 4]
        return " ".join(["", f"{sentence()[:-1]} .", f"Then , in {i} , {sentence()[4:-1]} .", ""])

    for name, build in (("rte", rte), ("wic", wic), ("stsb", stsb), ("snli", snli)):
        (root / name).mkdir(parents=True)
        for split, n in SIZES.items():
            lines = [json.dumps(build(i, split)) + "\n" for i in range(n)]
            (root / name / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    (root / "wikitext-2").mkdir()
    for split, n in SIZES.items():
        file = root / "wikitext-2" / f"{'valid' if split == 'dev' else split}.txt"
        file.write_text("".join(wikitext(i, split) + "\n" for i in range(n)), encoding="utf-8")
    return root


@pytest.fixture(autouse=True)
def threads():
    """A run may set the number of threads of the process."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def compositions():
    with files_are_merged_once():
        yield


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """A folder for `source.root`."""
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def composed():
    """`composed("task=rte", ...)`: the training configuration as the command line makes it."""
    return composed_once


@pytest.fixture(scope="session")
def small(data_dir):
    """Overrides of a run of seconds: tiny encoder, fixture data, CPU."""
    return (
        "encoder=tiny",
        "encoder.width=16",
        "source=local",
        f"source.root={data_dir}",
        "report=false",  # pages are drawn by tests of their own
        "trainer.accelerator=cpu",
        "trainer.max_epochs=1",
        "data.batch_size=8",
        "data.eval_batch_size=8",
        "optimizer.lr=1e-3",
    )


@pytest.fixture
def built(composed, small, tmp_path, monkeypatch):
    """`built("isotropy=cluster_pca", ...)`: the parts of a small run, seeded by its seed."""
    import pytorch_lightning as pl

    from isotrain.build import build
    from isotrain.encoders.start import start_file

    def build_small(*overrides):
        cfg = composed(*small, *overrides)
        pl.seed_everything(cfg.seed, workers=True, verbose=False)
        return build(cfg, tmp_path, start_file(cfg.init_from, cfg.encoder))

    build_small.unchecked = lambda: monkeypatch.setattr("isotrain.build.check_parts", id)
    return build_small


@pytest.fixture(scope="session")
def tokenizer():
    """The in-memory tokenizer of encoder=tiny."""
    from isotrain.encoders.tiny import build_tiny

    return build_tiny(width=8, n_blocks=1, n_heads=1).tokenizer


@pytest.fixture(scope="session")
def write_fixture_data():
    """`write_data` itself, for tests that need the rows elsewhere or of another seed."""
    return write_data
