"""Compose, resolve, hash and write the configuration of a run, and name its folder."""

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra import compose, initialize_config_dir, initialize_config_module
from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, OmegaConf, open_dict

from isotrain.config.schema import LOCATIONS, NAMED, NOT_CONTENT, READS, RUN, RunConfig
from isotrain.runs.files import as_json, read_result, replace_text
from isotrain.runs.secrets import redacted
from isotrain.runs.shapes import DamagedError, misfit

WORD = r"[A-Za-z_][A-Za-z0-9_./-]*"  # a text that needs no quotes
READ_AS_VALUES = ("true", "false", "null", "nan", "inf")  # in any case, unless they are quoted
JOB = {"method": str, "config": dict, "overrides": [str], "search": str, "planned_data": str}


def conf_folder() -> str:
    """The config tree: next to the package in a checkout, inside it when installed."""
    sibling = Path(__file__).resolve().parents[2] / "conf"
    return str(sibling) if (sibling / "train.yaml").is_file() else "pkg://isotrain.conf"


def compose_run(overrides: Sequence[str]) -> DictConfig:
    """Compose the configuration of a run from Python, as the command line does."""
    RUN.register()
    folder = conf_folder()
    is_package = folder.startswith("pkg://")
    start = initialize_config_module if is_package else initialize_config_dir
    with start(folder.removeprefix("pkg://"), version_base="1.3"):
        cfg = compose("train", list(overrides), return_hydra_config=True)
    return without_hydra(cfg)


def without_hydra(cfg: DictConfig) -> DictConfig:
    """A composed configuration without Hydra's own part, with the chosen files as `names`."""
    choices = cfg.hydra.runtime.choices
    with open_dict(cfg):
        del cfg["hydra"]
        if "names" in cfg:  # of a run
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
    """Nested keys joined by dots, with their values; without some of them and what is below."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        key = f"{start}{name}"
        if key in leave_out:
            continue
        if isinstance(value, Mapping) and value:
            found |= dotted(value, f"{key}.", leave_out)
        else:
            found[key] = value
    return found


def content(config: Mapping[str, Any]) -> dict[str, Any]:
    """The dotted keys of a recorded configuration that change a result (not `NOT_CONTENT`)."""
    return dotted(config, leave_out=NOT_CONTENT)


def without_locations(config: Mapping[str, Any]) -> dict[str, Any]:
    """`content` without locations, whose digests are in the `data` of a run."""
    found = content(config)
    for key, (target, beginning) in LOCATIONS.items():
        is_read = target is None or found.get(f"{key.partition('.')[0]}._target_") == target
        if is_read and found.get(key) is not None and str(found[key]).startswith(beginning):
            del found[key]
    return found


class RunId(NamedTuple):
    """Identity of a run, from a plan or from its record."""

    task: str  # module of the task: `wic` of `isotrain.tasks.wic.WiC`
    method: str
    content: str  # hash of the keys without locations
    reads: str  # hash of the keys that decide which files are read, locations among them

    def folder(self, data: str) -> Path:
        """`<task>/<method>-<hash>` of the run that reads this revision of the data."""
        return Path(self.task) / f"{self.method}-{_hash([self.content, data])[:10]}"


def run_id(config: Mapping[str, Any], method: str) -> RunId:
    """The id of a run by its recorded configuration."""
    task = str(config["task"]["_target_"]).split(".")[-2]
    reads = [config.get(key) for key in READS]
    return RunId(task, method, _hash(without_locations(config)), _hash(reads))


def content_hash(cfg: DictConfig) -> str:
    """Content hash of a run, independent of where its data are."""
    return _hash(without_locations(recorded(cfg)))


def run_folder(cfg: DictConfig, method: str, data: str) -> Path:
    """`<output_dir>/<task>/<method>-<hash>`, a hash of configuration and data (`revision`).

    `threads` must be a number: results depend on it.
    """
    assert cfg.threads is not None
    return Path(str(cfg.output_dir)) / run_id(recorded(cfg), method).folder(data)


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class RunJob(NamedTuple):
    """Arguments of `isotrain.run.run`."""

    cfg: DictConfig
    method: str
    overrides: Sequence[str] = ()  # of `isotrain train` that give this configuration, if known
    search: str = ""  # that the run is a trial of: it is chosen by its score, and no result
    data: str = ""  # revision of what it reads, as planned: the run refuses another; "" = any


def write_job(job: RunJob, path: Path) -> None:
    """Write what `isotrain run PATH` runs."""
    replace_text(path, job_text(job))


def job_text(job: RunJob) -> str:
    """A job as one text, with references to the environment kept."""
    keys = OmegaConf.to_container(job.cfg, resolve=False, enum_to_str=True)
    more = {"overrides": list(job.overrides), "search": job.search, "planned_data": job.data}
    return json.dumps({"method": job.method, "config": keys, **more}, indent=2)


def read_job(path: Path) -> RunJob:
    """The job that `write_job` wrote, or that a `result.json` records.

    Raises:
        DamagedError: a ValueError: there is no such file, or it is none of these.
    """
    if path.name == "result.json":
        read_result(path.parent)
    try:
        return parse_job(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = f"neither the job of a study nor the record of a run: {type(error).__name__}: {error}"
        raise DamagedError(path, why) from error


def parse_job(text: str) -> RunJob:
    """The job of a `job_text`."""
    job = json.loads(text)
    if reason := misfit(job, JOB):
        raise ValueError(reason)
    if mistakes := method_mistakes(method := job["method"]):
        raise ValueError(*mistakes)
    cfg = OmegaConf.merge(OmegaConf.structured(RunConfig), OmegaConf.create(dict(job["config"])))
    assert isinstance(cfg, DictConfig)
    more = (job.get(key) or "" for key in ("search", "planned_data"))
    return RunJob(cfg, method, job.get("overrides") or (), *more)


def method_mistakes(method: str) -> list[str]:
    """Why a method name, built from its layer and losses, is not a valid folder name."""
    if re.fullmatch(r"[\w.+=-]{1,150}", method) and set(method) != {"."}:
        return []
    return [f"method names a folder: 1 to 150 letters, digits and _.+=-, got {method[:80]!r}"]


def key_of(override: str) -> str:
    """The key of an override: `a.b` of `+a.b=[1,2]` and of `~a.b`."""
    return override.lstrip("+~").partition("=")[0]


def written(value: Any) -> str:
    r"""The text after the `=` of an override that gives exactly this value.

    Args:
        value: a number, a text, true, false, None, or a list of these and of lists.

    Raises:
        ValueError: a value of another kind, such as a mapping.

    >>> written([1e-5, True, None, "a b", "it's", "true", ["x", 2]])
    "[1e-05,true,null,'a b','it\\'s','true',[x,2]]"
    """
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
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
