"""Which data sets and encoders are in reach, and whether the hub is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib import import_module
from multiprocessing import get_context
from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from omegaconf import OmegaConf

from isotrain.config.environment import HUB_OFF, is_on
from isotrain.config.sweep import names, shipped
from isotrain.console import install
from isotrain.doctor.line import Line
from isotrain.encoders.on_disk import MINILM, is_on_disk, packaged_folder
from isotrain.requirements import data_sets_of
from isotrain.tasks.data.sources import SPLITS, DataSet, HubSource, LocalSource

DATA_DIR = "ISOTRAIN_DATA_DIR"
TIMEOUT_S = 3.0  # of the hub
NO_WEIGHTS = "run once with network access, or encoder=huggingface encoder.name=<its folder>"
NO_PACKAGE = install("demo")
NO_HUB = f"use a machine with network access, or source=local encoder=minilm ({NO_PACKAGE})"


def data() -> Iterator[Line]:
    """The data set of each task in the folder of `source=local`; opens no file of data."""
    yield Line("data", "source=demo", "always there: generated, no files")
    root = os.environ.get(DATA_DIR)
    sets = data_sets()
    if not root:
        layout = ", ".join(f"<folder>/{name}/train.jsonl" for name in sorted(sets)[:2])
        yield Line(
            "data",
            "source=local",
            f"{DATA_DIR} is not set",
            f"export {DATA_DIR}=<folder>, with {layout}, ...; or use source=hub or source=demo",
        )
        return
    source = LocalSource(root)
    for name, (data_set, tasks) in sorted(sets.items()):
        there = [s for s in SPLITS if not source.missing(data_set._replace(needs=(s,)))]
        problem = source.missing(data_set)
        found = f"{', '.join(there) or 'nothing'} in {root} (task={', '.join(tasks)})"
        yield Line("data", name, found, problem or "")


@cache
def data_sets() -> dict[str, tuple[DataSet, list[str]]]:
    """Every data set that the tasks of the package ask for, with the tasks, by its name.

    Tasks import torch, which takes seconds and may be what is broken: another process is asked.

    Raises:
        ImportError: a task cannot be imported.
    """
    targets = {task: str(_content("task", task)["_target_"]) for task in names("task")}
    if "torch" in sys.modules:
        of_tasks = _of_targets(list(targets.values()))
    else:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            of_tasks = process.submit(_of_targets, list(targets.values())).result()
    found: dict[str, tuple[DataSet, list[str]]] = {}
    for task, own in zip(targets, of_tasks, strict=True):
        for data_set in own:
            found.setdefault(data_set.name, (data_set, []))[1].append(task)
    return found


def _of_targets(targets: list[str]) -> list[list[DataSet]]:
    homes = [target.rpartition(".") for target in targets]
    return [data_sets_of(getattr(import_module(home), name)) for home, _, name in homes]


def encoders() -> Iterator[Line]:
    """Each encoder of the package that has weights: on disk, or what brings it there."""
    yield Line("encoders", "tiny", "always there: random weights")
    is_off = is_on(*HUB_OFF)
    folder = packaged_folder()
    for option in names("encoder"):
        content = _content("encoder", option)
        name = content.get("name")
        if not name or OmegaConf.is_missing(content, "name"):
            continue
        is_minilm = content["_target_"] == MINILM
        if folder is not None and is_minilm:
            yield Line("encoders", option, f"in {folder}")
        elif is_on_disk(name, content.get("revision")):
            yield Line("encoders", option, f"{name}, in the cache of the hub")
        elif is_off:
            found = f"{name} is not on disk, and the hub is switched off"
            yield Line("encoders", option, found, NO_PACKAGE if is_minilm else NO_WEIGHTS)
        else:
            yield Line("encoders", option, f"{name} is fetched from the hub at its first use")


def hub(ask: bool) -> Iterator[Line]:
    """Whether the Hugging Face hub answers; asked over the network only if `ask`."""
    from huggingface_hub.constants import ENDPOINT, HF_HUB_CACHE

    yield Line("hub", "cache", HF_HUB_CACHE)
    switches = [n for n in HUB_OFF if is_on(n)]
    if switches:
        yield Line("hub", ENDPOINT, f"switched off by {' and '.join(switches)}")
    elif not ask:
        yield Line("hub", ENDPOINT, "not asked; isotrain doctor --network does")
    else:
        problem = _no_answer(ENDPOINT)
        yield Line("hub", ENDPOINT, problem or "answers", NO_HUB if problem else "")
    if switches:
        missing = [n for n, (one, _) in data_sets().items() if HubSource().missing(one)]
        if missing:
            fix = f"unset {' '.join(switches)} once with network access, or use source=local"
            yield Line("hub", "source=hub", f"not in the cache: {', '.join(missing)}", fix)


def _no_answer(address: str) -> str:
    """Why an address gives no answer; empty where it does, whatever the answer is."""
    found: list[str] = []

    def ask() -> None:
        try:
            urlopen(Request(address, method="HEAD"), timeout=TIMEOUT_S).close()
        except HTTPError:  # an answer that says no
            found.append("")
        except (OSError, ValueError) as error:
            found.append(f"no answer ({error})")
        else:
            found.append("")

    thread = Thread(target=ask, daemon=True)  # looking up a name knows no time limit
    thread.start()
    thread.join(TIMEOUT_S + 1.0)
    return found[0] if found else f"no answer within {TIMEOUT_S:g} s"


def _content(group: str, name: str) -> Any:
    return OmegaConf.create((shipped(group) / f"{name}.yaml").read_text(encoding="utf-8"))
