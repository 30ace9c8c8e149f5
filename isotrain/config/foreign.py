"""Restrictions on configuration files that do not apply to the command line.

A file is a configuration of `--config-dir`, a study, search or sweep, or a job. It may name
folders outside the working directory only to read data and weights, and may read only the
environment variables `ISOTRAIN_*`.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from isotrain.config.compose import RunJob
from isotrain.config.targets import is_of_user

READ_ONLY = ("analysis", "encoder", "from_run", "init_from", "source", "task")
REFERENCE = r"\$\{(oc\.env:ISOTRAIN_\w+(,[^${}]*)?|(?!hydra\b)\w[\w.]*)\}"
# Of a value that is a path below the output folder at most
OF_USER = r"oc\.env:ISOTRAIN_(?!ALLOW|DATA_DIR|JOB)\w+"
ROOT = rf"^\$\{{(output_dir|{OF_USER})\}}(/|$)"
BELOW = rf"\$\{{({OF_USER}(,[\w+-]+(\.\w+)*)?|(?!oc\.|({'|'.join(READ_ONLY)})\b)\w[\w.]*)\}}"
# A folder or address elsewhere, or what could become one with a value in place of each $
ELSEWHERE = r"^[~/]|(^|/)\.\.(/|$)|://|^file:|\$\{|^\$.|\.\$|\$[.~$]|:.*\$|\$.*:"
MOST_NODES = 100_000  # of a yaml file
SHOWN = 80  # letters of a text in a message
GIVE = "give it on the command line"
CHANGE = "change it in the file"


def file_mistakes(content: Any, remedy: str = GIVE) -> list[str]:
    """References, folders and addresses that are forbidden in a configuration file.

    >>> file_mistakes({"output_dir": "../x", "source": {"root": "/data"}})
    ['output_dir=../x: a file names no folder or address elsewhere; give it on the command line']
    """
    found = reference_mistakes(content, remedy)
    return found or [
        f"{key}={text[:SHOWN]}: a file names no folder or address elsewhere; {remedy}"
        for key, text, is_read in texts(content)
        if not is_read and re.search(ELSEWHERE, re.sub(BELOW, "$", re.sub(ROOT, "./", text)))
    ]


def reference_mistakes(content: Any, remedy: str = GIVE) -> list[str]:
    """References in unresolved content to anything but keys and `ISOTRAIN_*` variables."""
    return [
        f"{key}={text[:SHOWN]}: a file may refer to keys, and to ${{oc.env:ISOTRAIN_...}}; {remedy}"
        for key, text, _ in texts(content)
        if "$" in re.sub(REFERENCE, "", text)
    ]


def plan_mistakes(content: Any) -> list[str]:
    """`file_mistakes` of a study, search or sweep: of lists of overrides, and of values by key."""
    found: list[str] = []
    parser = OverridesParser.create()
    for key, text, _ in texts(content):
        top, _, below = key.partition(".")
        if top not in ("overrides", "tasks", "methods"):
            found += file_mistakes({(below if top in ("grid", "space") else key).lstrip("+"): text})
            continue
        with suppress(HydraException):  # what cannot be read is rejected where it is composed
            override = parser.parse_override(text)
            value = override.value()
            if override.is_choice_sweep():
                choices = override.sweep_string_iterator()
                value = [parser.parse_override(f"x={choice}").value() for choice in choices]
            found += file_mistakes({override.key_or_group: value})
    return found


def job_of_file(job: RunJob, file: Path) -> RunJob:
    """A job that writes below the working directory or its file, or to the folder it came from.

    Raises:
        ValueError: every error, one per line.
    """
    content: Any = OmegaConf.to_container(job.cfg, resolve=False, enum_to_str=True)
    output_dir, _ = str(content.pop("output_dir")), content.pop("cache_dir")
    mistakes = file_mistakes(content, CHANGE)
    folder, above = Path(output_dir).resolve(), file.resolve().parents
    # <output_dir>/<task>/<run>/result.json, <output_dir>/studies/<name>/jobs/<run>.json
    is_own = folder in above[2:4] or {above[0], Path.cwd()} & {folder, *folder.parents}
    if not is_own or "${" in output_dir:
        mistakes.append(
            f"output_dir={output_dir[:SHOWN]} is neither below {Path.cwd()} nor that of {file}; "
            f"start the command in a folder above it, or {CHANGE}"
        )
    if mistakes:
        raise ValueError("\n".join(mistakes))
    job.cfg.cache_dir = job.cfg.cache_dir and "${output_dir}/.cache"
    return job


class ForeignSource(FileConfigSource):
    """Hydra's files of `--config-dir`, each restricted before anything in it is resolved."""

    def load_config(self, config_path: str) -> ConfigResult:
        """The file, as Hydra reads it."""
        file = Path(self.path, self._normalize_file_name(config_path))
        content = content_of(file.read_text(encoding="utf-8"), str(file))
        found, defaults = reference_mistakes(content), str(dict(content).get("defaults"))
        if "hydra" in content or re.search(r"hydra\b|[.]{2}|//|\$", defaults):
            found.append(f"{file}: hydra is set by isotrain itself, and defaults are its options")
        if found:
            raise HydraException("\n".join(found))
        return super().load_config(config_path)


def content_of(text: str, name: str) -> Any:
    """The unresolved content of a yaml text; `name` is that of its file in messages.

    Raises:
        ValueError: it is no yaml, or neither a mapping nor a list, or too large.
    """
    errors = yaml.YAMLError, OmegaConfBaseException, ValueError, AssertionError, RecursionError
    try:
        _check_size(text)
        return OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except errors as error:
        raise ValueError(f"{name} cannot be read: {error}") from error


def _check_size(text: str) -> None:
    """Raise a ValueError if a yaml text has too many nodes once its aliases are copied."""
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

    if (n := size(yaml.compose(text, Loader=yaml.CSafeLoader))) > MOST_NODES:
        raise ValueError(
            f"it has {n:,} values when its aliases are written out, of at most {MOST_NODES:,}; "
            "use fewer aliases (*name)"
        )


def texts(node: Any, key: str = "", is_read: bool = False) -> Iterator[tuple[str, str, bool]]:
    """Every text of plain content with its dotted key, and whether it may be an input path.

    Texts in a list have the key of the list. Parts of user packages are not restricted.
    """
    if isinstance(node, dict):
        if key.partition(".")[0] not in READ_ONLY and "_target_" in node:
            is_read = is_of_user(str(node["_target_"]))
        for name, value in node.items():
            is_top = not key and str(name).partition(".")[0] in READ_ONLY
            yield from texts(value, f"{key}.{name}" if key else str(name), is_read or is_top)
    elif isinstance(node, list):
        for value in node:
            yield from texts(value, key, is_read)
    elif isinstance(node, str):
        yield key, node, is_read
