"""Tasks by the names of their files in `conf/task`, outside a run."""

from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from isotrain.config.shipped import text_of


def preset_node(name: str) -> DictConfig:
    """The keys of `conf/task/<name>.yaml`, on those of the files that it builds on."""
    node = OmegaConf.create(text_of("task", name))
    assert isinstance(node, DictConfig)
    bases = [preset_node(base) for base in node.pop("defaults", ()) if base != "_self_"]
    merged = OmegaConf.merge(*bases, node)
    assert isinstance(merged, DictConfig)
    return merged


def preset(name: str, **keys: Any) -> Any:
    """A new task of `conf/task`, with some keys changed.

    >>> preset("stsb", form="bi").data_set.folders
    ['STS-B']
    """
    return instantiate(OmegaConf.merge(preset_node(name), keys), _convert_="all")
