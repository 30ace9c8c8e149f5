"""What a run needs of this machine, looked for before anything is loaded."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hydra.utils import get_object
from omegaconf import DictConfig, OmegaConf

from isotrain.config.binding import OF_HYDRA
from isotrain.config.environment import is_on
from isotrain.config.reading import class_calls
from isotrain.config.targets import is_allowed
from isotrain.console import install
from isotrain.encoders.finished_run import start_file
from isotrain.encoders.on_disk import MINILM, NO_PEFT, WAYS_OUT, is_on_disk, packaged_folder
from isotrain.tasks.data.sources import DataSet

if TYPE_CHECKING:  # torch is not needed to look for a file
    from isotrain.types import Source

PACKAGES = {  # that a logger needs, one of them, and what installs it
    "build_tensorboard_logger": (("tensorboard", "tensorboardX"), install("tensorboard")),
    "TensorBoardLogger": (("tensorboard", "tensorboardX"), install("tensorboard")),
    "build_wandb_logger": (("wandb",), "pip install wandb"),
    "MLFlowLogger": (("mlflow",), "pip install mlflow"),
    "CometLogger": (("comet_ml",), "pip install comet-ml"),
}


def file_mistakes(cfg: DictConfig) -> list[str]:
    """Data, weights and packages that a configuration needs and that are not here, with ways out.

    A folder is looked for in any case; the hub's cache only where the hub is switched off
    (`HF_HUB_OFFLINE=1`). Nothing is read and no network is asked.
    """
    mistakes = [*_data_mistakes(cfg), *encoder_mistakes(cfg), *_peft_mistakes(cfg)]
    mistakes += _logger_mistakes(cfg)
    try:
        start_file(cfg.init_from, cfg.encoder)
    except ValueError as error:
        mistakes.append(str(error))
    return mistakes


def _data_mistakes(cfg: DictConfig) -> list[str]:
    source, task = _source(cfg), _target(cfg, "task")
    if source is None:
        return []
    # A task of the user's with other habits gives none here: told when it loads.
    known = class_calls(task, "data_sets") or class_calls(task, "data_set")
    required = set(DataSet._fields) - set(DataSet._field_defaults)
    readable = [fields for fields in known if required <= set(fields)]
    missing = [source.missing(DataSet(**fields)) for fields in readable]
    return [sentence for sentence in missing if sentence]


def _source(cfg: DictConfig) -> Source | None:
    """The source; None where it cannot be made: wrong keys are for the check to tell."""
    target = _target(cfg, "source")
    if not is_allowed(target):
        return None
    try:
        keys = OmegaConf.to_container(cfg.source, resolve=True)
        assert isinstance(keys, dict)
        made = get_object(target)(**{str(k): v for k, v in keys.items() if k not in OF_HYDRA})
    except Exception:  # wrong keys, which the check tells, or code of the user's that build tells
        return None
    return made if hasattr(made, "missing") else None


def encoder_mistakes(cfg: DictConfig) -> list[str]:
    """Weights that are neither on disk nor reachable, with the ways out."""
    target = _target(cfg, "encoder")
    name = _resolved(cfg, "encoder.name")
    if not target.startswith("isotrain.encoders.") or not isinstance(name, str):
        return []
    if target == MINILM and packaged_folder() is not None:
        return []
    if name.startswith(("/", "./", "../", "~")) and not is_on_disk(name):
        return [f"encoder.name={name} is no folder with a config.json; {WAYS_OUT}"]
    revision = _resolved(cfg, "encoder.revision")
    if is_on("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") and not is_on_disk(name, revision):
        return [f"encoder {name} is not on disk and the hub is switched off; {WAYS_OUT}"]
    return []


def _peft_mistakes(cfg: DictConfig) -> list[str]:
    target = _target(cfg, "peft")
    if not target.startswith("isotrain.encoders.adapters.") or target.endswith(".no_adapters"):
        return []
    if find_spec("peft"):
        return []
    return [NO_PEFT.format(target.rpartition(".")[2])]


def _logger_mistakes(cfg: DictConfig) -> list[str]:
    mistakes = []
    for name in OmegaConf.select(cfg, "logger") or ():
        target = _target(cfg, f"logger.{name}")
        packages, fix = PACKAGES.get(target.rpartition(".")[2], ((), ""))
        if packages and not any(find_spec(package) for package in packages):
            mistakes.append(
                f"logger.{name} needs the package {packages[0]}, which is not installed; "
                f"{fix}, or leave that logger out"
            )
    return mistakes


def _target(cfg: DictConfig, group: str) -> str:
    return str(_resolved(cfg, f"{group}._target_"))


def _resolved(cfg: DictConfig, key: str) -> Any:
    """A value; None where it is absent or a reference leads nowhere, which other rules tell."""
    return OmegaConf.select(cfg, key, throw_on_resolution_failure=False)
