"""README, docs and pages of experiments: their blocks, and the commands in them."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "experiments").rglob("*.md")),
]
RUN = re.compile(r"((?:init_from|from_run)=)?runs/\w+/\w+-0123456789")  # of somebody's own
ACTIONS = ("run", "status", "report")  # commands of studies and searches
STARTS = {"isotrain ": [], "python train.py ": ["train"]}
FILES = (  # yaml of docs/many-runs.md
    *("mine/experiment/layers.yaml", "mine.yaml", "best.yaml"),
    "mine/hydra/launcher/cluster.yaml",
)
# Commands that stand in a sentence alone. Others there are a name, or one of a block again.
IN_A_SENTENCE = re.compile(r"`isotrain\s+((?:analyze|collect|export|train)\s[^`<…]+)`")


def name_of(page):
    return str(page.relative_to(ROOT))


def fences(page, language):
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [text for own, text in found if own == language]


def commands():
    """The words behind `isotrain` of every command, with the page it stands on, as parameters."""
    found = []
    for page in PAGES:
        own = []
        for block in fences(page, ""):
            for line in block.replace("\\\n", " ").splitlines():
                for start, words in STARTS.items():
                    if line.startswith(start):
                        own.append(words + shlex.split(line.removeprefix(start), comments=True))
        if "decisions" not in page.parts:
            own += map(shlex.split, IN_A_SENTENCE.findall(page.read_text()))
        found += [pytest.param(words, id=f"{name_of(page)}: {' '.join(words)}") for words in own]
    return found


def write_files(folder):
    """Write the yaml files of docs/many-runs.md, which its commands name, into a folder."""
    for name, text in zip(FILES, fences(ROOT / "docs" / "many-runs.md", "yaml"), strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
