"""What a study is: tasks × arms × seeds in one yaml file, read and judged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from isotrain.config.binding import nearest
from isotrain.config.compose import conf_folder

KEYS = ("overrides", "tasks", "arms", "baseline", "seeds")
NAME = r"[A-Za-z0-9][A-Za-z0-9_.]*"  # names become file names, joined by dashes


class StudyError(ValueError):
    """A study that cannot run; the message has every mistake, one a line."""


@dataclass(frozen=True)
class Study:
    """Every task with every arm and every seed; `tasks` and `arms` map names to overrides."""

    name: str
    overrides: tuple[str, ...]  # of every run
    tasks: Mapping[str, tuple[str, ...]]
    arms: Mapping[str, tuple[str, ...]]
    baseline: str  # the arm that the others are compared with
    seeds: tuple[int, ...]


def study_names() -> list[str]:
    """The studies that come with the package.

    >>> "smoke" in study_names()
    True
    """
    names = (file.name for file in _shipped().iterdir())
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def load_study(name_or_path: str) -> Study:
    """A study by its name in `conf/study`, or by the path of a yaml file.

    Raises:
        StudyError: an unknown name, a file that cannot be read, or what is wrong in it.

    >>> load_study("smoke").seeds
    (0, 1)
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise StudyError(f"there is no file {path}; {_listed(path.stem)}")
        text = path.read_text(encoding="utf-8")
    elif name_or_path in study_names():
        text = (_shipped() / f"{name_or_path}.yaml").read_text(encoding="utf-8")
    else:
        raise StudyError(f"there is no study {name_or_path}; {_listed(name_or_path)}")
    try:
        content = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except (YAMLError, OmegaConfBaseException) as error:
        raise StudyError(f"{name_or_path} cannot be read: {error}") from error
    if mistakes := _mistakes(content):
        raise StudyError("\n".join(f"study {path.stem}: {mistake}" for mistake in mistakes))
    assert isinstance(content, dict)
    return Study(
        name=path.stem,
        overrides=tuple(content.get("overrides", ())),
        tasks={name: tuple(overrides) for name, overrides in content["tasks"].items()},
        arms={name: tuple(overrides) for name, overrides in content["arms"].items()},
        baseline=content["baseline"],
        seeds=tuple(content["seeds"]),
    )


def _shipped() -> Any:
    """The folder of the studies, on disk or inside the installed package."""
    folder = conf_folder()
    root = files(folder.removeprefix("pkg://")) if folder.startswith("pkg://") else Path(folder)
    return root / "study"


def _listed(given: str) -> str:
    return f"{nearest(given, study_names(), 'there are')} (or give the path of a .yaml file)"


def _mistakes(content: Any) -> list[str]:
    """What is wrong in the file itself; its overrides are judged when the runs are planned."""
    if not isinstance(content, dict):
        return [f"a study has the keys {', '.join(KEYS)}"]
    mistakes = [f"no key {key}; {nearest(str(key), KEYS)}" for key in content if key not in KEYS]
    mistakes += [f"{key} is missing" for key in KEYS if key not in content and key != "overrides"]
    if not _are_overrides(content.get("overrides", [])):
        mistakes.append("overrides must be a list such as [encoder=tiny, 'site=[tokens]']")
    for key in ("tasks", "arms"):
        if key in content:
            mistakes += _group_mistakes(key, content[key])
    arms, seeds = content.get("arms"), content.get("seeds", [0])
    if isinstance(arms, dict) and "baseline" in content and content["baseline"] not in arms:
        hint = nearest(str(content["baseline"]), [str(arm) for arm in arms])
        mistakes.append(f"baseline={content['baseline']} is not one of the arms; {hint}")
    numbers = isinstance(seeds, list) and all(type(k) is int and k >= 0 for k in seeds)
    if not numbers or not seeds or len(set(seeds)) < len(seeds):
        mistakes.append(f"seeds must be different whole numbers from 0, at least one, got {seeds}")
    return mistakes


def _group_mistakes(key: str, group: Any) -> list[str]:
    if not isinstance(group, dict) or not group:
        return [f"{key} must map at least one name to overrides, such as none: [isotropy=none]"]
    mistakes = []
    for name, overrides in group.items():
        if not isinstance(name, str) or not re.fullmatch(NAME, name):
            mistakes.append(
                f"{key} has the name {name!r}; use letters, digits, _ and . (yaml reads off, on, "
                "no, yes and numbers as values: put them in quotes)"
            )
        elif not _are_overrides(overrides):
            mistakes.append(
                f"{key}.{name} must be a list of overrides such as [isotropy=none, "
                f"'site=[tokens]'], got {overrides!r}"
            )
    return mistakes


def _are_overrides(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
