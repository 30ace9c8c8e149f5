"""The configuration files that come with the package: folder, names and texts."""

from importlib.resources import files
from pathlib import Path
from typing import Any

from isotrain.console import nearest

YAML = (".yaml", ".yml")


def conf_folder() -> str:
    """The config tree: next to the package in a checkout, inside it when installed."""
    sibling = Path(__file__).resolve().parents[2] / "conf"
    return str(sibling) if (sibling / "train.yaml").is_file() else "pkg://isotrain.conf"


def shipped(group: str = "") -> Any:
    """The folder of a group of `conf`, on disk or inside the installed package."""
    folder = conf_folder()
    root = files(folder.removeprefix("pkg://")) if folder.startswith("pkg://") else Path(folder)
    return root / group if group else root


def names(group: str) -> list[str]:
    """The names of a group's files in the package, sorted."""
    file_names = (file.name for file in shipped(group).iterdir())
    return sorted(name.removesuffix(".yaml") for name in file_names if name.endswith(".yaml"))


def text_of(group: str, name_or_path: str) -> str:
    """The text of a file, given by its name in the group or by a path that ends in `.yaml`.

    Raises:
        ValueError: no file of that name.

    >>> text_of("studies", "smoek")
    Traceback (most recent call last):
    ValueError: studies has no smoek; did you mean smoke? (or give the path of a .yaml file)
    """
    if name_or_path.endswith(YAML):
        return Path(name_or_path).read_text(encoding="utf-8")
    if name_or_path not in names(group):
        hint = nearest(name_or_path, names(group))
        raise ValueError(
            f"{group} has no {name_or_path}; {hint} (or give the path of a .yaml file)"
        )
    return str((shipped(group) / f"{name_or_path}.yaml").read_text(encoding="utf-8"))


def plan_name(name_or_path: str) -> str:
    """The name of a study or search: its file's, or the folder's of `study.yaml` or `search.yaml`.

    >>> plan_name("smoke"), plan_name("mine.yaml"), plan_name("experiments/freezing/study.yaml")
    ('smoke', 'mine', 'freezing')
    """
    path = Path(name_or_path)
    if path.name in ("study.yaml", "search.yaml"):
        return path.resolve().parent.name
    return path.stem if path.suffix in YAML else path.name
