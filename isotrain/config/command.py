"""Validate the overrides of a command line, one by one and then together."""

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from difflib import get_close_matches
from functools import cache, lru_cache
from itertools import product
from math import ceil, prod
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_search_path_impl import ConfigSearchPathImpl
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from isotrain.config.analysis import ANALYSIS
from isotrain.config.check import missing_keys, mistakes_in
from isotrain.config.compose import RunJob, conf_folder, method_mistakes, without_hydra, written
from isotrain.config.foreign import ForeignSource, file_mistakes
from isotrain.config.rules import twice
from isotrain.config.schema import RUN, Schema
from isotrain.config.signatures import SUPPLIED, nearest, wrong_value

MOST_RUNS = 2_000  # of one command
MOST_JUDGED = 64  # runs of a sweep that are validated as a whole; each value is read in any case
OTHERS = {  # groups whose files are no part of one run, and their use
    "study": "isotrain run {}",
    "tune": "isotrain run {}",
    "sweep": "isotrain train -m sweep={}",
}


class Root(NamedTuple):
    """A kind of command: its root configuration file and its rules."""

    name: str
    schema: Schema
    others: Mapping[str, str]  # groups that are for another command, and that command
    several: str  # what to do for several values of a key


SEVERAL = ("objective", "metric", "logger", "experiment")  # groups of which a run has several
TRAINING = (  # groups of a run that an analysis lacks
    *("task", "pooling", "isotropy", "freezing", "peft", "objective", "metric", "experiment"),
    *("optimizer", "schedule", "trainer", "logger"),
)
TRAIN = Root(
    "train",
    RUN,
    {**OTHERS, "analysis": "isotrain analyze analysis={}"},
    "add -m to run them in turn",
)
ANALYZE = Root(
    "analyze",
    ANALYSIS,
    {**OTHERS, **{group: f"isotrain train {group}={{}}" for group in TRAINING}},
    "an analysis takes one; give a command for each",
)


def check_command(
    overrides: Sequence[str], config_dir: str | None = None, root: Root = TRAIN
) -> tuple[DictConfig | None, list[str]]:
    """The configuration (None if it does not compose) and every error of a command line.

    >>> check_command(["sede=1", "task=wicc"])[1]
    ['task=wicc does not exist; did you mean wic?', 'no key sede; did you mean seed?']
    """
    jobs, mistakes = check_jobs(overrides, config_dir, root=root)
    return next((job.cfg for job in jobs), None), mistakes


def check_jobs(
    overrides: Sequence[str],
    config_dir: str | None = None,
    multirun: bool = False,
    root: Root = TRAIN,
) -> tuple[list[RunJob], list[str]]:
    """The runs that compose, and every error in keys; nothing is imported.

    With `multirun` the runs of a sweep; the last key of several values varies fastest.
    """
    root.schema.register()
    if config_dir is not None and not Path(config_dir).is_dir():
        return [], [f"--config-dir {config_dir} is not a folder"]
    own = None if config_dir is None else str(Path(config_dir).resolve())
    loader, compose = _composer(own, _newest(own), root.name)
    mistakes: list[str] = []
    alternatives: list[list[Override]] = []
    unknown: set[str] = set()  # groups whose option does not exist
    for text in overrides:
        try:
            values = _simple(text, multirun, root)
            found = [m for value in values for m in _group_mistakes(loader, value, root)]
        except Exception as error:  # Hydra has many kinds
            mistakes.append(f"{text} cannot be read: {_first_line(error)}")
            continue
        mistakes += found
        if found:
            unknown.add(values[0].key_or_group)
        else:
            alternatives.append(values)
    if too_many := refusal_of(prod(map(len, alternatives)), "runs"):
        return [], [*mistakes, too_many]
    jobs: list[RunJob] = []
    for job in product(*alternatives):
        values = [one for one in job if not _is_group(loader, one)]
        groups = tuple(str(one.input_line) for one in job if one not in values)
        try:
            cfg, layer = compose(groups)
        except Exception as error:
            places = ", ".join(text.replace("=", "/") for text in groups)
            mistakes.append(f"{_reasons(error, root)} (of {places})")
            continue
        found = [m for one in values if (m := _apply(one, cfg, loader, unknown, root.schema))]
        mistakes += found
        is_missing = found and missing_keys(cfg)  # the misspelt key may be the missing one
        if not is_missing and len(jobs) < MOST_JUDGED:
            try:
                mistakes += mistakes_in(cfg, root.schema)
            except Exception as error:  # a value of a kind that no rule has thought of
                problem = f"{type(error).__name__}: {_first_line(error)}"
                mistakes.append(f"this configuration cannot be read: {problem}")
        extra = [str(name) for name in cfg.get("objective") or ()]
        method = "-".join([layer] * (layer != "none" or not extra) + extra)
        mistakes += method_mistakes(method)
        given = [f"--config-dir={own}"] if own else []
        jobs.append(RunJob(cfg, method, given + [str(one.input_line) for one in job]))
    return jobs, list(dict.fromkeys(mistakes))


class _Loader(ConfigLoaderImpl):
    """Hydra's loader with cached options of groups."""

    def __init__(self, path: ConfigSearchPathImpl) -> None:
        super().__init__(path)
        self.get_group_options = cache(super().get_group_options)  # type: ignore[method-assign, assignment]

    def options_with(self, key: str) -> str:
        """`<group>=<option>, ...` of the options whose files have a dotted key; else empty."""
        group, *path = key.split(".")
        found = []
        for option in self.get_group_options(group, ObjectType.CONFIG) if path else ():
            try:
                file: Any = self.repository.load_config(f"{group}/{option}")
            except (HydraException, OSError, TypeError, ValueError):
                continue  # a damaged file is reported where it is chosen
            node: Any = OmegaConf.to_container(file.config)
            for name in path[:-1]:
                node = node.get(name) if isinstance(node, dict) else None
            if isinstance(node, dict) and path[-1] in node:
                found.append(option)
        return f"{group}={', '.join(found)}" if found else ""


def refusal_of(n: int, what: str) -> str | None:
    """Why a number of runs is too large; None if it is accepted."""
    if n <= MOST_RUNS:
        return None
    return f"{n:,} {what}, of at most {MOST_RUNS:,} in a plan; give fewer values, or several plans"


def _newest(config_dir: str | None) -> int:
    """Time of the last change of a configuration file, in ns."""
    folders = [Path(name) for name in (conf_folder(), config_dir) if name]
    files = [file for folder in folders for file in (folder, *folder.rglob("*")) if file.exists()]
    return max((file.stat().st_mtime_ns for file in files), default=0)


@lru_cache(maxsize=4)
def _composer(
    config_dir: str | None, newest: int, root: str
) -> tuple[_Loader, Callable[[tuple[str, ...]], tuple[DictConfig, str]]]:
    """The loader of groups, and a cached `compose(groups)` -> configuration, isotropy layer."""
    Plugins.instance()  # registers the kinds of config sources
    folder = conf_folder()
    path = ConfigSearchPathImpl()
    path.append("hydra", "pkg://hydra.conf")
    path.append("main", folder if folder.startswith("pkg://") else f"file://{folder}")
    if config_dir is not None:
        path.append("command-line", f"file://{config_dir}")
    path.append("schema", "structured://")
    loader = _Loader(path)
    loader.repository.sources = [
        ForeignSource(one.provider, one.path) if one.provider == "command-line" else one
        for one in loader.get_sources()
    ]
    known: dict[tuple[str, ...], tuple[DictConfig, str]] = {}

    def compose(groups: tuple[str, ...]) -> tuple[DictConfig, str]:
        if groups not in known:
            cfg = loader.load_configuration(root, list(groups), run_mode=RunMode.RUN)
            layer = str(cfg.hydra.runtime.choices.get("isotropy"))
            cfg = without_hydra(cfg)
            content = OmegaConf.to_container(cfg, resolve=False)
            if config_dir is not None and (mistakes := file_mistakes(content)):
                raise HydraException("\n".join(mistakes))
            known[groups] = cfg, layer
        return deepcopy(known[groups])

    return loader, compose


def _simple(text: str, multirun: bool, root: Root) -> list[Override]:
    """The override itself, or one for each value of a sweep."""
    if not re.match(r"~|[^=]+=", text):
        raise HydraException("give key=value without blanks around the =, such as task=wic")
    parser = OverridesParser.create()
    override = parser.parse_override(text)
    if not override.is_sweep_override():
        return [override]
    key = override.get_key_element()
    if not multirun:
        raise HydraException(f"several values; {root.several}, or give a list: '{key}=[...]'")
    if not override.is_discrete_sweep():
        raise HydraException("a sweep needs values, such as 0,1,2 or range(3)")
    if isinstance(swept := override.value(), RangeSweep):
        n = ceil((float(swept.stop or 0) - float(swept.start or 0)) / swept.step)
        if too_many := refusal_of(n, "values"):
            raise HydraException(too_many)
    return [parser.parse_override(f"{key}={v}") for v in override.sweep_string_iterator()]


def _is_group(loader: ConfigLoaderImpl, override: Override) -> bool:
    """Whether an override is a group choice for Hydra; other values are applied afterwards."""
    key = override.key_or_group
    return "." not in key and bool(loader.get_group_options(key, ObjectType.CONFIG))


def _group_mistakes(loader: ConfigLoaderImpl, override: Override, root: Root) -> list[str]:
    if override.is_hydra_override():
        return [
            f"{override.input_line}: isotrain starts its runs itself, without Hydra's launchers, "
            "sweepers and logging; use --jobs N for several at a time, output_dir=... for another "
            "folder"
        ]
    if not _is_group(loader, override) or override.is_delete():
        return []
    group, value = override.key_or_group, override.value()
    if group in root.others:
        use = root.others[group].format(value)
        return [f"{group}={value} is for another command; use: {use}"]
    options = loader.get_group_options(group, ObjectType.CONFIG)
    chosen = value if isinstance(value, list) else [value]
    if twice(chosen):
        return [f"{group} must have each of its names once, got {chosen}"]
    if len(chosen) > 1 and group not in SEVERAL:
        return [f"{group} takes one of its names, got {chosen}; {root.several}"]
    if None in chosen:
        return [f"{group}=null is no option; leave it out, or choose from {', '.join(options)}"]
    return [
        f"{group}={name} does not exist; {hint}"
        + ("" if hint.startswith("did") else "; --config-dir DIR adds your own options")
        for name in chosen
        if str(name) not in options
        for hint in [nearest(str(name), options, "there are")]
    ]


def _apply(
    override: Override, cfg: DictConfig, loader: _Loader, unknown: set[str], schema: Schema
) -> str | None:
    """Apply an override in place; the error if it does not apply (known groups only)."""
    key = override.key_or_group
    if key.partition(".")[0] in unknown:
        return None
    section, _, leaf = key.rpartition(".")
    keys = schema.sections.get(section)
    if override.is_delete() and keys and leaf in keys.__dataclass_fields__:
        return f"{key} was deleted, and {schema.what} needs it; leave it in"
    try:
        ConfigLoaderImpl._apply_overrides_to_config([override], cfg)
    except Exception as error:
        cause, value = error.__cause__, override.value()
        if override.is_delete() or cause is None:
            return f"{override.input_line}: {_first_line(error)}"
        if "is not in struct" in str(cause) or "not in '" in str(cause):
            return _no_key(max(key, str(getattr(cause, "full_key", "")), key=len), cfg, loader)
        if key in schema.sections and not isinstance(value, dict):
            first, default = next(iter(vars(schema.sections[key]()).items()))
            return f"{key} has keys, got {value}; set one, such as {key}.{first}={default}"
        if keys and leaf in keys.__dataclass_fields__ and key not in schema.sections:
            default = written(getattr(keys(), leaf))
            if problem := wrong_value(key, get_type_hints(keys)[leaf], value):
                return f"{problem}; its default is {key}={default}"
        return f"{override.input_line}: {_first_line(cause)}"
    return None


def _no_key(key: str, cfg: DictConfig, loader: _Loader) -> str:
    """The message for a dotted key that does not exist, with the nearest one."""

    def exists(right: str) -> bool:
        found = OmegaConf.select(cfg, right, default=..., throw_on_resolution_failure=False)
        return found is not ...

    node: Any = OmegaConf.to_container(cfg, resolve=False)
    above, (part, *rest) = "", key.split(".")
    while rest and isinstance(node.get(part), dict):
        above, node, (part, *rest) = f"{above}{part}.", node[part], rest
    if part in SUPPLIED.get(key.partition(".")[0], ()):
        return f"{key} is set by isotrain itself; leave it out"
    known = [str(name) for name in node if not str(name).startswith("_")]
    for name in known:
        if exists(right := ".".join([f"{above}{name}.{part}", *rest])):
            return f"no key {key}; did you mean {right}?"
    if key.partition(".")[0] in cfg and (options := loader.options_with(key)):
        return f"no key {key}; it belongs to {options}"
    if near := get_close_matches(part, known, n=1):
        right = ".".join([f"{above}{near[0]}", *rest])
        return f"no key {key}; did you mean {right if exists(right) else above + near[0]}?"
    hint = nearest(part, known)
    if "_target_" in node:  # its file lists not all it takes
        hint += f"; if {node['_target_']} takes it, add it: +{key}=..."
    return f"no key {key}; {hint}"


def _reasons(error: Exception, root: Root) -> str:
    """The error of a composition in one line, without empty headings."""
    lines = [line.strip().rstrip(":") for line in str(error).splitlines() if line.strip()]
    if unknown := re.search(r"Key '(\w+)' not in '\w+'", str(error)):
        sections = root.schema.sections.values()
        known = [name for keys in sections for name in keys.__dataclass_fields__]
        lines.insert(1, nearest(unknown[1], known))
    return "; ".join(lines[:3]) or type(error).__name__


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(":")
