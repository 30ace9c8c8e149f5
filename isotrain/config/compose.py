"""A run's configuration: composed, made plain, hashed, given a folder, written as text."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hydra import compose, initialize_config_dir, initialize_config_module
from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, OmegaConf

from isotrain.config.schema import NOT_CONTENT, RUN, RunConfig

WORD = r"[A-Za-z_][A-Za-z0-9_./-]*"  # a text that needs no quotes
READ_AS_VALUES = ("true", "false", "null", "nan", "inf")  # in any case, unless they are quoted


def conf_folder() -> str:
    """Where the config tree is: beside the package in a checkout, inside it when installed."""
    sibling = Path(__file__).resolve().parents[2] / "conf"
    return str(sibling) if (sibling / "train.yaml").is_file() else "pkg://isotrain.conf"


def compose_run(overrides: Sequence[str]) -> DictConfig:
    """The configuration of a run from Python, as the command line would compose it."""
    RUN.register()
    folder = conf_folder()
    package = folder.removeprefix("pkg://")
    with (
        initialize_config_dir(folder, version_base="1.3")
        if package == folder
        else initialize_config_module(package, version_base="1.3")
    ):
        return compose("train", list(overrides))


def plain(cfg: DictConfig) -> dict[str, Any]:
    """The resolved configuration as plain containers."""
    container = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True, throw_on_missing=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def content_hash(cfg: DictConfig) -> str:
    """Ten hex digits that name what a run computes: of every key but those in `NOT_CONTENT`."""
    content = plain(cfg)
    for key in NOT_CONTENT:
        section, _, leaf = key.rpartition(".")
        (content[section] if section else content).pop(leaf)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:10]


def run_folder(cfg: DictConfig, arm: str) -> Path:
    """`<output_dir>/<task>/<arm>-<content hash>`, whether it exists or not.

    A task is named by its module: `wic` of `isotrain.tasks.wic.WiC`. `threads` must be a number:
    results depend on it.
    """
    assert cfg.threads is not None
    task = str(cfg.task["_target_"]).split(".")[-2]
    return Path(str(cfg.output_dir)) / task / f"{arm}-{content_hash(cfg)}"


class RunJob(NamedTuple):
    """What `isotrain.run.run` takes."""

    cfg: DictConfig
    arm: str
    overrides: Sequence[str] = ()  # of `isotrain train` that give this configuration, if known
    search: str = ""  # that the run is a trial of: it is chosen by its score, and no result


def write_job(job: RunJob, path: Path) -> None:
    """Write what `isotrain run PATH` runs."""
    path.write_text(job_text(job), encoding="utf-8")


def job_text(job: RunJob) -> str:
    """A job as one text, with references to the environment kept."""
    keys = OmegaConf.to_container(job.cfg, resolve=False, enum_to_str=True)
    content = {"arm": job.arm, "config": keys, "overrides": list(job.overrides)}
    return json.dumps(content | {"search": job.search}, indent=2)


def read_job(path: Path) -> RunJob:
    """The job that `write_job` wrote, or that a `result.json` records.

    Raises:
        ValueError: there is no such file, or it is none of these.
    """
    try:
        return parse_job(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is no job ({type(error).__name__}: {error}); give a job file of a study, or "
            "the result.json of a run"
        ) from error


def parse_job(text: str) -> RunJob:
    """The job of a `job_text`."""
    job = json.loads(text)
    if not re.fullmatch(r"[\w.+=-]+", arm := job["arm"]) or set(arm) == {"."}:
        raise ValueError(f"arm names a folder: letters, digits and _.+=-, got {arm!r}")
    cfg = OmegaConf.merge(OmegaConf.structured(RunConfig), OmegaConf.create(job["config"]))
    assert isinstance(cfg, DictConfig)
    return RunJob(cfg, arm, job.get("overrides") or (), job.get("search") or "")


def key_of(override: str) -> str:
    """The key of an override: `a.b` of `+a.b=[1,2]` and of `~a.b`."""
    return override.lstrip("+~").partition("=")[0]


def written(value: Any) -> str:
    r"""The text after the `=` of an override that gives this value, and nothing else.

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
