"""The overrides of a command line, judged one by one and then together."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from isotrain.config.binding import nearest
from isotrain.config.compose import conf_folder
from isotrain.config.rules import missing_keys, mistakes_in
from isotrain.config.schema import register


def check_command(
    overrides: Sequence[str], config_dir: str | None = None, multirun: bool = False
) -> tuple[DictConfig | None, list[str]]:
    """The configuration (None where it does not compose) and every mistake of a command line.

    A sweep (`seed=0,1` with `multirun`) is judged value by value; the configuration is that of
    the first values.

    >>> check_command(["sede=1", "task=wicc"])[1]
    ['no key sede; did you mean seed?', 'task=wicc does not exist; did you mean wic?']
    """
    register()
    if config_dir is not None and not Path(config_dir).is_dir():
        return None, [f"--config-dir {config_dir} is not a folder"]
    loader = _loader(config_dir)
    mistakes: list[str] = []
    groups: list[str] = []
    values: list[Override] = []
    for text in overrides:
        try:
            for number, override in enumerate(_simple(text, multirun)):
                if _is_group(loader, override):
                    found = _group_mistakes(loader, override)
                    mistakes += found
                    if number == 0 and not found:
                        groups.append(override.input_line or text)
                elif override.is_hydra_override():
                    continue
                else:
                    values.append(override)
        except HydraException as error:
            mistakes.append(f"{text} cannot be read: {_first_line(error)}")
    try:
        cfg = loader.load_configuration("train", groups, run_mode=RunMode.RUN)
    except HydraException as error:
        return None, [*mistakes, _first_line(error)]
    with open_dict(cfg):
        del cfg["hydra"]
    mistakes = [mistake for override in values if (mistake := _apply(override, cfg))] + mistakes
    if mistakes and missing_keys(cfg):  # the misspelt key may be the missing one
        return cfg, mistakes
    return cfg, mistakes + mistakes_in(cfg)


def _loader(config_dir: str | None) -> ConfigLoaderImpl:
    Plugins.instance()  # registers the kinds of config sources
    folder = conf_folder()
    path = ConfigSearchPathImpl()
    path.append("hydra", "pkg://hydra.conf")
    path.append("main", folder if folder.startswith("pkg://") else f"file://{folder}")
    if config_dir is not None:
        path.append("command-line", f"file://{Path(config_dir).resolve()}")
    path.append("schema", "structured://")
    return ConfigLoaderImpl(path)


def _simple(text: str, multirun: bool) -> list[Override]:
    """The override itself, or one for each value of a sweep."""
    parser = OverridesParser.create()
    override = parser.parse_override(text)
    if not override.is_sweep_override():
        return [override]
    if not multirun:
        key = override.get_key_element()
        raise HydraException(
            f"several values; add -m to run them in turn, or give a list: '{key}=[...]'"
        )
    if not override.is_discrete_sweep():
        raise HydraException("a sweep needs values, such as 0,1,2 or range(3)")
    key = override.get_key_element()
    return [parser.parse_override(f"{key}={v}") for v in override.sweep_string_iterator()]


def _is_group(loader: ConfigLoaderImpl, override: Override) -> bool:
    key = override.key_or_group
    return "." not in key and bool(loader.get_group_options(key, ObjectType.CONFIG))


def _group_mistakes(loader: ConfigLoaderImpl, override: Override) -> list[str]:
    if override.is_delete():
        return []
    group, value = override.key_or_group, override.value()
    if group == "study":
        return [f"a study is no part of a run; use: isotrain study run {value}"]
    options = loader.get_group_options(group, ObjectType.CONFIG)
    chosen = value if isinstance(value, list) else [value]
    mistakes = []
    for name in [str(name) for name in chosen if name is not None]:
        if name not in options:
            near = get_close_matches(name, options, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(options)}"
            mistakes.append(f"{group}={name} does not exist; {hint}")
    return mistakes


def _apply(override: Override, cfg: DictConfig) -> str | None:
    """Apply an override in place; the mistake if it does not apply."""
    try:
        ConfigLoaderImpl._apply_overrides_to_config([override], cfg)
    except HydraException as error:
        key = override.key_or_group
        cause = error.__cause__
        if override.is_delete() or cause is None:
            return f"{override.input_line}: {_first_line(error)}"
        if "is not in struct" in str(cause) or "not in '" in str(cause):
            parent = OmegaConf.select(cfg, key.rpartition(".")[0]) if "." in key else cfg
            section = parent if isinstance(parent, DictConfig) else cfg
            known = [name for name in map(str, section) if not name.startswith("_")]
            given = key.rpartition(".")[2] if section is parent else key
            return f"no key {key}; {nearest(given, known)}"
        if "is not a ListConfig" in str(cause):
            return f"{key} is a list; write '{key}=[{override.get_value_element_as_str()}]'"
        reason = re.sub(r"Value '(.*)' of type '(\w+)' could", r"\1 could", _first_line(cause))
        return f"{override.input_line}: {reason}"
    return None


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rstrip(":")
