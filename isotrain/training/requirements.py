"""Check requirements of a run: valid keys and parts, available data, weights and packages."""

from importlib.util import find_spec
from inspect import isclass
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from isotrain.config.check import mistakes_in, part_mistakes
from isotrain.config.environment import is_on
from isotrain.config.signatures import constant, load
from isotrain.config.targets import OF_HYDRA
from isotrain.console import install
from isotrain.encoders.on_disk import (
    MINILM,
    WAYS_OUT,
    digest_of_folder,
    is_on_disk,
    packaged_folder,
)
from isotrain.encoders.start import start_file
from isotrain.runs.files import sha256_of
from isotrain.tasks.data.sources import DataSet, Source

LOGGERS, LIGHTNING = "isotrain.training.loggers", "pytorch_lightning.loggers"
TENSORBOARD = ("tensorboard", "tensorboardX"), install("tensorboard")
PACKAGES = {  # needed by a part (any of them), and how to install it
    "isotrain.encoders.adapters.lora": (("peft",), install("peft")),
    "isotrain.encoders.adapters.ia3": (("peft",), install("peft")),
    f"{LOGGERS}.tensorboard_logger.build_tensorboard_logger": TENSORBOARD,
    f"{LOGGERS}.wandb_logger.build_wandb_logger": (("wandb",), "pip install wandb"),
    f"{LIGHTNING}.TensorBoardLogger": TENSORBOARD,
    f"{LIGHTNING}.MLFlowLogger": (("mlflow",), "pip install mlflow"),
    f"{LIGHTNING}.CometLogger": (("comet_ml",), "pip install comet-ml"),
}


def check(cfg: DictConfig) -> None:
    """Raise a ValueError, with one line per error, if a run cannot start here.

    First keys, then weights and packages, without imports; then the imported parts; then data.
    """
    found = mistakes_in(cfg) or file_mistakes(cfg) or part_mistakes(cfg) or data_mistakes(cfg)
    if found:
        raise ValueError("\n".join(found))


def data_revision(cfg: DictConfig) -> str:
    """Revision of the task's data sets in the source; reads no examples."""
    nodes = (cfg.source, cfg.task)
    source, task = (instantiate(node, _partial_=True, _convert_="all")() for node in nodes)
    return "; ".join(dict.fromkeys(map(source.revision_of, task.data_sets)))


def revision(cfg: DictConfig) -> str:
    """Revision of all inputs of a run: data sets, `init_from`, the encoder's folder."""
    found = data_revision(cfg)
    if start := start_file(cfg.init_from, cfg.encoder):
        found += f"; init_from {sha256_of(start)[:12]}"
    if (folder := Path(str(cfg.encoder.get("name")))).is_dir():
        found += f"; encoder {digest_of_folder(folder)[:12]}"
    return found


def file_mistakes(cfg: DictConfig) -> list[str]:
    """Missing weights and packages, with fixes; no imports and no network.

    The hub's cache is searched only if the hub is switched off (`HF_HUB_OFFLINE=1`).
    """
    mistakes = encoder_mistakes(cfg)
    adapters = str(_resolved(cfg, "peft._target_"))
    parts = {f"peft={adapters.rpartition('.')[2]}": adapters}
    parts |= {
        f"logger.{name}": str(_resolved(cfg, f"logger.{name}._target_"))
        for name in OmegaConf.select(cfg, "logger") or ()
    }
    for part, target in parts.items():
        packages, fix = PACKAGES.get(target, ((), ""))
        if packages and not any(find_spec(package) for package in packages):
            mistakes.append(f"{part} needs the package {packages[0]}; {fix}, or leave it out")
    try:
        start_file(cfg.init_from, cfg.encoder)
    except ValueError as error:
        mistakes.append(str(error))
    return mistakes


def data_mistakes(cfg: DictConfig) -> list[str]:
    """Data sets of the task that the source lacks; nothing is read."""
    task, source = load(cfg.task._target_), load(cfg.source._target_)
    if not (isclass(source) and issubclass(source, Source)):
        base = f"{Source.__module__}.{Source.__name__}"
        return [f"source._target_={cfg.source._target_} must inherit from {base}"]
    keys: Any = OmegaConf.to_container(cfg.source, resolve=True)
    try:
        given = source(**{key: value for key, value in keys.items() if key not in OF_HYDRA})
    except ValueError as error:
        return [f"source: {error}"]
    return [told for data_set in data_sets_of(task) if (told := given.missing(data_set))]


def data_sets_of(task: Any) -> list[DataSet]:
    """Data sets declared by a task class: `data_sets`, or `data_set` for a single one."""
    named = constant(task, "data_sets") or (constant(task, "data_set"),)
    return [one for one in named if one is not None]


def encoder_mistakes(cfg: DictConfig) -> list[str]:
    """Weights that are neither on disk nor downloadable, with fixes."""
    target, name = (_resolved(cfg, f"encoder.{key}") for key in ("_target_", "name"))
    if not str(target).startswith("isotrain.encoders.") or not isinstance(name, str):
        return []
    if target == MINILM and packaged_folder() is not None:
        return []
    if name.startswith(("/", "./", "../", "~")) and not is_on_disk(name):
        return [f"encoder.name={name} is no folder with a config.json; {WAYS_OUT}"]
    revision = _resolved(cfg, "encoder.revision")
    if is_on("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") and not is_on_disk(name, revision):
        return [f"encoder {name} is not on disk and the hub is switched off; {WAYS_OUT}"]
    return []


def _resolved(cfg: DictConfig, key: str) -> Any:
    """A value; None if absent or a reference cannot be resolved."""
    return OmegaConf.select(cfg, key, throw_on_resolution_failure=False)
