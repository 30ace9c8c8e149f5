"""Compose, resolve, hash and write the configuration of a run, and name its folder."""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hydra import compose, initialize_config_dir, initialize_config_module
from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, OmegaConf, open_dict

from hydra_plugins.isotrain_sweepers import register
from isotrain.config.parts import check_recorded
from isotrain.config.schema import LOCATIONS, NAMED, NOT_CONTENT, READS, READS_DATA, RUN, RunConfig
from isotrain.config.shipped import conf_folder
from isotrain.config.typos import NOT_COMPOSED, find_typos, first_line
from isotrain.console import UserError
from isotrain.runs.files import as_json
from isotrain.runs.secrets import redacted

WORD = r"[A-Za-z_][A-Za-z0-9_./-]*"  # a text that needs no quotes
READ_AS_VALUES = ("true", "false", "null", "nan", "inf")  # in any letter case, unless quoted


class ConfigError(UserError):
    """Overrides that do not compose, or a configuration that breaks a rule: a line for each."""


def compose_run(
    overrides: Sequence[str], config_dir: str | None = None, root: str = "train"
) -> DictConfig:
    """Compose the configuration of a run (`root="analyze"`: of an analysis) from Python.

    `config_dir` has the user's config groups, as `--config-dir` on the command line.

    Raises:
        ConfigError: every override that does not apply, with the nearest key or option.
    """
    with _composer(config_dir, root) as composer:
        try:
            return without_hydra(composer(overrides))
        except (*NOT_COMPOSED, ValueError, AssertionError) as error:
            messages = find_typos(overrides, composer, config_dir) or [first_line(error)]
            raise ConfigError("\n".join(messages)) from error


def wrong_overrides(overrides: Sequence[str], config_dir: str | None = None) -> list[str]:
    """Every override of a command line that does not apply, including values of a sweep.

    >>> wrong_overrides(["task=wic,wicc", "sede=1"])
    ['task=wicc does not exist; did you mean wic?', 'no key sede; did you mean seed?']
    """
    with _composer(config_dir, "train") as composer:
        return find_typos(overrides, composer, config_dir)


@contextmanager
def _composer(config_dir: str | None, root: str) -> Iterator[Callable[[Sequence[str]], DictConfig]]:
    """Hydra's `compose` of a root configuration."""
    if config_dir is not None and not Path(config_dir).is_dir():
        raise ConfigError(f"--config-dir {config_dir} is not a folder")
    extra = [f"hydra.searchpath=[{quote(str(Path(config_dir).resolve()))}]"] if config_dir else []
    RUN.register()
    register()
    folder = conf_folder()
    is_package = folder.startswith("pkg://")
    initialize = initialize_config_module if is_package else initialize_config_dir
    with initialize(folder.removeprefix("pkg://"), version_base="1.3"):
        yield lambda overrides: compose(root, [*extra, *overrides], return_hydra_config=True)


def without_hydra(cfg: DictConfig) -> DictConfig:
    """A composed configuration without Hydra's own part, with the chosen files as `names`."""
    choices = cfg.hydra.runtime.choices
    with open_dict(cfg):
        del cfg["hydra"]
    return with_names(cfg, choices)


def with_names(cfg: DictConfig, choices: Mapping[str, Any]) -> DictConfig:
    """A configuration with the chosen files of its groups as `names`."""
    if "names" in cfg:  # of a run
        with open_dict(cfg):
            cfg.names = {g: str(choices[g]) for g in NAMED if choices.get(g)} | dict(cfg.names)
    return cfg


def plain(cfg: DictConfig) -> dict[str, Any]:
    """The resolved configuration as plain containers."""
    container = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True, throw_on_missing=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def recorded(cfg: DictConfig) -> dict[str, Any]:
    """The resolved configuration for a record: without secrets, null for NaN."""
    return dict(redacted(as_json(plain(cfg))))


def dotted(
    config: Mapping[str, Any], start: str = "", leave_out: Collection[str] = ()
) -> dict[str, Any]:
    """Nested keys joined by dots, with their values; without `leave_out` and the keys below it."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        key = f"{start}{name}"
        if key in leave_out:
            continue
        if isinstance(value, Mapping) and value:
            flat |= dotted(value, f"{key}.", leave_out)
        else:
            flat[key] = value
    return flat


def content(config: Mapping[str, Any]) -> dict[str, Any]:
    """The dotted keys of a recorded configuration that change a result (not `NOT_CONTENT`)."""
    return dotted(config, leave_out=NOT_CONTENT)


def without_locations(config: Mapping[str, Any]) -> dict[str, Any]:
    """`content` without locations, whose digests are in the `data` of a run."""
    values = content(config)
    for key, (target, prefix) in LOCATIONS.items():
        is_read = target is None or values.get(f"{key.partition('.')[0]}._target_") == target
        if is_read and values.get(key) is not None and str(values[key]).startswith(prefix):
            del values[key]
    return values


class RunId(NamedTuple):
    """Identity of a run, from a plan or from its record."""

    task: str  # as `task_name`
    method: str
    content: str  # hash of the keys without locations
    reads: str  # hash of the keys that decide which files are read, locations among them

    def folder(self, data: str) -> Path:
        """`<task>/<method>-<hash>` of the run that reads this revision of the data."""
        return Path(self.task) / f"{self.method}-{_hash([self.content, data])[:10]}"


def run_id(config: Mapping[str, Any], method: str) -> RunId:
    """The id of a run by its recorded configuration."""
    reads = [config.get(key) for key in READS] + [
        (config.get("data") or {}).get(key) for key in READS_DATA
    ]
    return RunId(task_name(config), method, _hash(without_locations(config)), _hash(reads))


def task_name(config: Mapping[str, Any]) -> str:
    """The name of a run's task in folders and tables.

    It is `task.name`, else the name of the user's data, else the module of the task's class.

    >>> task_name({"task": {"_target_": "isotrain.tasks.wic.WiC"}})
    'wic'
    >>> task_name({"task": {"name": None}, "data": {"path": "mine/good reviews.csv.gz"}})
    'good_reviews'
    """
    data = config.get("data") or {}
    hub_name = data.get("name") or str(data.get("hub") or "").rpartition("/")[2]
    path = data.get("path") and Path(str(data["path"])).resolve()
    data_name = path.name.partition(".")[0] or path.name if path else hub_name
    preferred_name = config["task"].get("name") or data_name
    name = preferred_name or str(config["task"]["_target_"]).split(".")[-2]
    return re.sub(r"[^\w+=-]+", "_", name)


def content_hash(cfg: DictConfig) -> str:
    """Content hash of a run, independent of where its data are."""
    return _hash(without_locations(recorded(cfg)))


def method_of(cfg: Mapping[str, Any]) -> str:
    """The method of a run: `method`, else its isotropy layer and objectives.

    >>> method_of({"method": None, "names": {"isotropy": "zca"}, "objective": {"cosreg": {}}})
    'zca-cosreg'
    >>> method_of({"method": None, "names": {"isotropy": "none"}, "objective": {"cosreg": {}}})
    'cosreg'
    """
    if cfg["method"] is not None:
        return str(cfg["method"])
    layer = str(cfg["names"].get("isotropy", "none"))
    losses = [str(name) for name in cfg["objective"] or ()]
    return "-".join([layer] * (layer != "none" or not losses) + losses)


def run_folder(cfg: DictConfig, data: str) -> Path:
    """`<output_dir>/<task>/<method>-<hash>`, a hash of configuration and data (`revision`).

    `threads` must be a number: results depend on it.
    """
    assert cfg.threads is not None
    return Path(str(cfg.output_dir)) / run_id(recorded(cfg), method_of(cfg)).folder(data)


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def config_of(result: Mapping[str, Any]) -> DictConfig:
    """The configuration in the record of a run.

    Raises:
        ValueError: it names code that a record may not run.
    """
    check_recorded(result["config"])
    cfg = OmegaConf.merge(OmegaConf.structured(RunConfig), OmegaConf.create(dict(result["config"])))
    assert isinstance(cfg, DictConfig)
    return cfg


def check_method(method: str) -> None:
    """Raise a ValueError if the name of a method cannot be part of a folder's."""
    if not re.fullmatch(r"[\w.+=-]{1,150}", method) or set(method) == {"."}:
        raise ValueError(
            f"method names a folder: 1 to 150 letters, digits and _.+=-, got {method[:80]!r}"
        )


def key_of(override: str) -> str:
    """The key of an override: `a.b` of `+a.b=[1,2]` and of `~a.b`."""
    return override.lstrip("+~").partition("=")[0]


def quote(value: Any) -> str:
    r"""The text after the `=` of an override that gives exactly this value.

    Args:
        value: a number, text, true, false, None, or a (nested) list of these.

    Raises:
        ValueError: a value of another kind, such as a mapping.

    >>> quote([1e-5, True, None, "a b", "it's", "true", ["x", 2]])
    "[1e-05,true,null,'a b','it\\'s','true',[x,2]]"
    """
    if isinstance(value, list):
        return f"[{','.join(map(quote, value))}]"
    if isinstance(value, str):
        if re.fullmatch(WORD, value) and value.lower() not in READ_AS_VALUES:
            return value
        return QuotedString(value, Quote.single).with_quotes()
    if value is None or isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, float):
        return str(value)
    raise ValueError(
        f"{value!r} is no value that an override can give: a number, a text, true, false, null or "
        "a list of these; give the keys of a mapping one by one, as a.b=1"
    )
