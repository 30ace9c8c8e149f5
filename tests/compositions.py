"""Training configurations, composed once: a composition takes a tenth of a second."""

from copy import deepcopy
from functools import cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from hydra_plugins.isotrain_sweepers import register
from isotrain.config.compose import without_hydra
from isotrain.config.schema import RUN
from isotrain.config.shipped import conf_folder

GROUPS = {folder.name for folder in Path(conf_folder()).iterdir() if folder.is_dir()}


def composed_once(*overrides: str) -> DictConfig:
    """The configuration as the command line makes it, as a copy.

    Groups are composed once, and values are then set by the function of Hydra that sets them.
    """
    return deepcopy(_composed(overrides))


@cache
def _composed(overrides: tuple[str, ...]) -> DictConfig:
    if any(text.startswith("hydra.") for text in overrides):
        return _of_groups(overrides)
    chosen = tuple(o for o in overrides if o.lstrip("+~").partition("=")[0] in GROUPS)
    cfg = deepcopy(_of_groups(chosen))
    values = [text for text in overrides if text not in chosen]
    parsed = OverridesParser.create().parse_overrides(values)
    ConfigLoaderImpl._apply_overrides_to_config(parsed, cfg)
    return cfg


@cache
def _of_groups(chosen: tuple[str, ...]) -> DictConfig:
    RUN.register()
    register()
    with initialize_config_dir(conf_folder(), version_base="1.3"):
        return without_hydra(compose("train", list(chosen), return_hydra_config=True))
