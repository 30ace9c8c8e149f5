"""What a file may say, whoever wrote it; a command line may say more.

A file is a configuration of `--config-dir`, a study, search or sweep, or a job. It names folders
outside of the working directory only to read data and weights, and reads no variable of the
environment but `ISOTRAIN_*`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

from isotrain.config.compose import RunJob

READ_ONLY = ("analysis", "encoder", "from_run", "init_from", "source", "task")
REFERENCE = r"\$\{(oc\.env:ISOTRAIN_\w+(,[^${}]*)?|\w[\w.]*)\}"
TO_READ = rf"\$\{{({'|'.join(READ_ONLY)})\b"
OVERRIDES = ("overrides", "tasks", "arms")  # of a plan, in lists
BY_KEY = ("grid", "space")  # of a plan: values of dotted keys
MOST_NODES = 100_000  # of a yaml file
SHOWN = 80  # letters of a text in a message


def file_mistakes(content: Any) -> list[str]:
    """What a configuration from a file says and may not, by its unresolved content.

    >>> file_mistakes({"output_dir": "../x", "source": {"root": "/data"}})
    ['output_dir=../x: only the command line names such a folder; give it there']
    """
    return [m for key, text in texts(content) if (m := _mistake(key, text))]


def plan_mistakes(content: Any) -> list[str]:
    """`file_mistakes` of a study, search or sweep: of its overrides and of its values by key."""
    found: list[str] = []
    parser = OverridesParser.create()
    for key, text in texts(content):
        top, _, below = key.partition(".")
        if top in OVERRIDES:
            with suppress(HydraException):  # what cannot be read is rejected where it is composed
                override = parser.parse_override(text)
                value = override.value()
                if override.is_choice_sweep():
                    choices = override.sweep_string_iterator()
                    value = [parser.parse_override(f"x={choice}").value() for choice in choices]
                found += file_mistakes({override.key_or_group: value})
        elif mistake := _mistake((below if top in BY_KEY else key).lstrip("+"), text):
            found.append(mistake)
    return found


def job_of_file(job: RunJob, file: Path) -> RunJob:
    """A job that writes below the working directory or its file, or to the folder it came from.

    Raises:
        ValueError: every mistake, in lines.
    """
    content = OmegaConf.to_container(job.cfg, resolve=False, enum_to_str=True)
    assert isinstance(content, dict)
    output_dir = str(content.pop("output_dir"))
    mistakes = file_mistakes({k: v for k, v in content.items() if k != "cache_dir"})
    folder, above = Path(output_dir).resolve(), file.resolve().parents
    # <output_dir>/<task>/<run>/result.json, <output_dir>/studies/<name>/jobs/<run>.json
    is_own = folder in above[2:4] or {above[0], Path.cwd()} & {folder, *folder.parents}
    if not is_own or "${" in output_dir:
        mistakes.append(
            f"output_dir={output_dir[:SHOWN]} is neither below {Path.cwd()} nor that of {file}; "
            "start the command in a folder above it, or change it in the file"
        )
    if mistakes:
        raise ValueError("\n".join(mistakes))
    job.cfg.cache_dir = job.cfg.cache_dir and "${output_dir}/.cache"
    return job


def check_size(text: str, name: str) -> None:
    """Raise a ValueError if a yaml text has too many nodes once its aliases are copied.

    What is no yaml is left to who reads it.
    """
    if "*" not in text:
        return
    sizes: dict[int, int] = {}

    def size(node: Any) -> int:
        if isinstance(node, tuple):
            return sum(map(size, node))
        if id(node) not in sizes:
            sizes[id(node)] = 0  # for a node within itself
            below = node.value if isinstance(node, yaml.CollectionNode) else ()
            sizes[id(node)] = 1 + sum(map(size, below))
        return sizes[id(node)]

    n = 0
    with suppress(yaml.YAMLError, RecursionError):
        n = size(yaml.compose(text, Loader=yaml.CSafeLoader))
    if n > MOST_NODES:
        raise ValueError(
            f"{name} has {n:,} values when its aliases are written out, of at most {MOST_NODES:,}; "
            "use fewer aliases (*name)"
        )


def texts(node: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text of plain content with its dotted key; those of a list have the key of the list."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from texts(value, f"{key}.{name}" if key else str(name))
    elif isinstance(node, list):
        for value in node:
            yield from texts(value, key)
    elif isinstance(node, str):
        yield key, node


def _mistake(key: str, text: str) -> str | None:
    """Why a file may not give a key this text."""
    shown = f"{key}={text[:SHOWN]}"
    text = text.removeprefix("${output_dir}/")
    is_read = key.partition(".")[0] in READ_ONLY
    # elsewhere a reference is the whole text: pieces that are joined could make any path
    plain = re.sub(REFERENCE, "", text, count=0 if is_read else 1)
    is_joined = "${" in text and not is_read and (plain or re.search(TO_READ, text))
    if "${" in plain or is_joined:
        return (
            f"{shown}: a file may refer to one key, or to ${{oc.env:ISOTRAIN_...}}; give it on the "
            "command line"
        )
    path = Path(text)
    if not is_read and (path.is_absolute() or ".." in path.parts or text.startswith("file:")):
        return f"{shown}: only the command line names such a folder; give it there"
    return None
