"""The parts that the files of `conf/` offer, for tests that hold for each of a kind."""

from functools import cache, partial
from pathlib import Path
from typing import ClassVar

import pytorch_lightning as pl
from hydra.utils import get_object
from omegaconf import OmegaConf

from isotrain.config.parts import parts_of
from isotrain.tasks.presets import preset

CONF = Path(__file__).parents[1] / "conf"


def names(group: str) -> list[str]:
    """The options of a config group."""
    return sorted(file.stem for file in (CONF / group).glob("*.yaml"))


def target(group: str, name: str) -> str:
    """What an option names as its `_target_`, itself or through the option that it changes."""
    content = OmegaConf.load(CONF / group / f"{name}.yaml")
    return content.get("_target_") or target(group, content.defaults[0])


@cache
def shipped_targets() -> list[str]:
    """Every `_target_` in the files of `conf/`."""
    found = set()
    for file in CONF.glob("*/*.yaml"):
        content = OmegaConf.to_container(OmegaConf.load(file), resolve=False)
        found |= {node["_target_"] for _path, node in parts_of(content)}
    return sorted(found)


TASKS = names("task")
OF_FIXTURES = ("rte", "wic", "stsb", "snli", "text", "nli_pairs", "stsb_sentences")
"""Tasks whose data sets the fixture `data_dir` has, and most of them the demo source."""
WITHOUT_DATA = {"classification", "regression", "pair_classification", "pair_regression"}
"""Tasks of any data set, which name none."""
WITHOUT_LOSS = [
    t for t in TASKS if getattr(get_object(target("task", t)), "has_labels", True) is False
]
"""Tasks that objectives alone train: their training rows have no labels."""


class Counted(pl.Callback):
    """A user's callback: optimizer steps, and what it finds among the callback metrics."""

    seen: ClassVar[list[tuple[int, float]]] = []

    def __init__(self, key):
        self.key = key

    def on_validation_end(self, trainer, pl_module):
        Counted.seen.append((trainer.global_step, float(trainer.callback_metrics[self.key])))


RTE, SNLI, STSB = (partial(preset, name) for name in ("rte", "snli", "stsb"))
"""`STSB(form="bi")`: a new task of the preset."""
