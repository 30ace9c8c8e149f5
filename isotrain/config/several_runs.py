"""The yaml files that ask for several runs, `conf/<group>/<name>.yaml`, and a rule for each run."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from isotrain.config.binding import nearest
from isotrain.config.compose import conf_folder

NAME = r"[A-Za-z0-9][A-Za-z0-9_.]*"  # names become file names, joined by dashes
NOUNS = {
    "study": "study",
    "tune": "search",
    "sweep": "sweep",
    "analysis": "analysis",
}  # of a file of each group


def shipped(group: str) -> Any:
    """The folder of a group of `conf`, on disk or inside the installed package."""
    folder = conf_folder()
    root = files(folder.removeprefix("pkg://")) if folder.startswith("pkg://") else Path(folder)
    return root / group


def names(group: str) -> list[str]:
    """The names of the files that come with the package, in order.

    >>> "smoke" in names("study"), "seeds" in names("sweep")
    (True, True)
    """
    found = (file.name for file in shipped(group).iterdir())
    return sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml"))


def text_of(group: str, name_or_path: str) -> str:
    """The text of a file, given by its name in the group or by a path that ends in `.yaml`.

    Raises:
        ValueError: there is none of that name, or no such file, or it cannot be read.

    >>> text_of("study", "smoek")
    Traceback (most recent call last):
    ValueError: there is no study smoek; did you mean smoke? (or give the path of a .yaml file)
    """
    path = Path(name_or_path)
    is_path = path.suffix in (".yaml", ".yml")
    if is_path and not path.is_file():
        beside = {file.stem: str(file) for file in path.parent.glob("*.y*ml") if file.is_file()}
        near = [beside[name] for name in get_close_matches(path.stem, beside, n=1)]
        near += get_close_matches(path.stem, names(group), n=1)
        where = f"check the path; it was looked for in {path.absolute().parent}"
        hint = f"did you mean {near[0]}?" if near else where
        raise ValueError(f"there is no file {path}; {hint}")
    if not is_path and name_or_path not in names(group):
        hint = nearest(name_or_path, names(group), "there are")
        what = f"{NOUNS[group]} {name_or_path}"
        raise ValueError(f"there is no {what}; {hint} (or give the path of a .yaml file)")
    file = path if is_path else shipped(group) / f"{name_or_path}.yaml"
    try:
        return str(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name_or_path} cannot be read: {error}") from error


def read(group: str, name_or_path: str) -> Any:
    """The content of a file as plain containers, references such as `${seed}` as they stand.

    Raises:
        ValueError: as `text_of`, or it is no yaml.
    """
    return content_of(text_of(group, name_or_path), name_or_path)


def content_of(text: str, name: str) -> Any:
    """The content of a yaml text; `name` says in a message whose it is.

    Raises:
        ValueError: it is no yaml, or neither a mapping nor a list.
    """
    try:
        return OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    except (YAMLError, OmegaConfBaseException, AssertionError) as error:  # the last of a number
        raise ValueError(f"{name} cannot be read: {error}") from error


def mistakes_of_every_run(content: dict[Any, Any]) -> list[str]:
    """What is wrong in such a file with the overrides and the seeds, which hold for every run."""
    mistakes, seeds = [], content.get("seeds", [0])
    if not are_overrides(content.get("overrides", [])):
        mistakes.append("overrides must be a list such as [encoder=tiny, 'site=[tokens]']")
    numbers = isinstance(seeds, list) and all(type(k) is int and k >= 0 for k in seeds)
    if not numbers or not seeds or len(set(seeds)) < len(seeds):
        mistakes.append(f"seeds must be different whole numbers from 0, at least one, got {seeds}")
    return mistakes


def are_overrides(value: Any) -> bool:
    """Whether it is a list of texts."""
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def mistakes_of_one_of_several(cfg: DictConfig, what: str) -> list[str]:
    """What a run may not have that a study or a search (`what`) starts: its own seed, `rerun`."""
    mistakes = []
    if cfg.threads is None:
        mistakes.append(f"threads must be a number in a {what}: scores depend on it; use threads=1")
    if cfg.rerun:
        mistakes.append("rerun=true would forget what is done; delete the folders of the runs")
    if cfg.seed != 0:
        mistakes.append(f"seed={cfg.seed} is for a single run; a {what} has its own list, seeds")
    return mistakes
