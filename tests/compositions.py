"""Compositions of Hydra at the price of a copy: there are thousands, of a third of a second."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from hydra_plugins.isotrain_sweepers import register
from isotrain.config.compose import without_hydra
from isotrain.config.schema import RUN, Schema
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


@contextmanager
def files_are_merged_once() -> Iterator[None]:
    """Hydra parses a file of one content, and merges the files of one choice, once.

    Values are set as ever. A folder of a test is known by the state of its files.
    """
    parsed, lists, merged = dict[str, Any](), dict[str, Any](), dict[int, Any]()
    load, list_of = OmegaConf.load, config_loader_impl.create_defaults_list
    merge, register = ConfigLoaderImpl._compose_config_from_defaults_list, Schema.register
    registered = set[str]()

    def load_once(file: Any) -> Any:
        if not isinstance(file, io.TextIOBase):
            return load(file)
        text = file.read()
        file.seek(0)
        if text not in parsed:
            parsed[text] = load(file)
        return deepcopy(parsed[text])

    def list_once(repo: Any, config_name: str, overrides_list: list[Any], **options: Any) -> Any:
        def chooses(one: Any) -> bool:
            return repo.group_exists(one.key_or_group) and not isinstance(one.value(), dict)

        given = [(one, chooses(one)) for one in overrides_list if not one.is_sweep_override()]
        groups = [one for one, is_choice in given if is_choice]
        chosen = [one.input_line for one in groups]
        key = repr((config_name, options, chosen, [*map(_state, repo.get_sources())]))
        if key not in lists:
            lists[key] = list_of(repo, config_name, groups, **options)
        return replace(
            lists[key], config_overrides=[one for one, is_choice in given if not is_choice]
        )

    def merge_once(self: Any, defaults: list[Any], repo: Any) -> Any:
        if id(defaults) not in merged:  # `lists` holds them
            merged[id(defaults)] = merge(self, defaults, repo)
        return deepcopy(merged[id(defaults)])

    def register_once(self: Schema) -> None:
        if self.name not in registered:
            register(self)
            registered.add(self.name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schema, "register", register_once)
        patch.setattr(OmegaConf, "load", staticmethod(load_once))
        patch.setattr(config_loader_impl, "create_defaults_list", list_once)
        patch.setattr(ConfigLoaderImpl, "_compose_config_from_defaults_list", merge_once)
        yield


def _state(source: Any) -> tuple[Any, ...]:
    if source.scheme() != "file" or source.path == conf_folder():
        return source.scheme(), source.path
    files = sorted(Path(source.path).rglob("*.yaml"))
    return source.path, [(str(file), file.stat().st_mtime_ns) for file in files]
