"""What is wrong with the overrides of a command line that does not compose, all of it at once."""

from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from isotrain.config.shipped import shipped
from isotrain.console import nearest

Compose = Callable[[Sequence[str]], DictConfig]
NOT_COMPOSED = (HydraException, OmegaConfBaseException, YAMLError)  # what `Compose` raises


def find_typos(
    overrides: Sequence[str], compose: Compose, config_dir: str | None = None
) -> list[str]:
    """Why overrides do not compose, a line for each, with the nearest key or option.

    `compose` is Hydra's, of the same root; an empty list if they do compose one by one.
    """
    found, keys, chosen = [], list[Override](), list[str]()
    for text in overrides:
        try:
            values = alternatives(text)
        except HydraException as error:
            found.append(f"{text} cannot be read: {first_line(error)}")
            continue
        options = options_of(values[0].key_or_group, config_dir)
        if not options or values[0].is_delete():
            keys += [value for value in values if not value.is_hydra_override()]
            continue
        good = []
        for value in values:
            given: Any = value.value()
            several = given if isinstance(given, list) else [given]
            names = ["null" if name is None else str(name) for name in several]
            key = value.get_key_element()  # with its + and @package
            unknown = (name for name in names if name not in options)
            if wrong := [name for name in unknown if _why(compose, [f"{key}={name}"])]:
                hint = nearest(wrong[0], sorted(options), "there are")
                found.append(f"{key}={wrong[0]} does not exist; {hint}")
            else:
                good.append(str(value.input_line))
        chosen += good[:1]
    try:
        known = list(_dotted(OmegaConf.to_container(compose(chosen), resolve=False)))
    except NOT_COMPOSED as error:
        return [*found, first_line(error)]
    for one in keys:
        if why := _why(compose, [*chosen, str(one.input_line)]):
            key = one.key_or_group
            is_plain = not (one.is_add() or one.is_force_add() or one.is_delete())
            is_missing = is_plain and key not in known
            hint = f"no key {key}; {_nearest_key(key, known)}"
            found.append(hint if is_missing else f"{one.input_line}: {why}")
    return list(dict.fromkeys(found))


def alternatives(text: str) -> list[Override]:
    """The override, or one for each value of a sweep such as `seed=0,1`.

    >>> [one.input_line for one in alternatives("seed=range(2)")]
    ['seed=0', 'seed=1']
    """
    hydra = GlobalHydra.instance()  # `glob` asks it for the options of a group
    parser = OverridesParser.create(hydra.config_loader() if hydra.is_initialized() else None)
    (override,) = parser.parse_overrides([text])
    if override.key_or_group == "":
        raise HydraException("there is no key before the =")
    if override.is_interval_sweep():
        raise HydraException("only a search draws from an interval; write values, such as 0,1")
    if not override.is_sweep_override():
        return [override]
    try:
        values = list(override.sweep_string_iterator())
    except ValueError as error:  # range(0,1,0)
        raise HydraException(str(error)) from error
    if not values:
        raise HydraException("it has no value")
    return [parser.parse_override(f"{override.get_key_element()}={value}") for value in values]


def options_of(group: str, config_dir: str | None = None) -> list[str]:
    """The names of a group's files, also of those of `config_dir`; empty if it is none."""
    folders = [shipped(), *([Path(config_dir)] if config_dir else [])]
    below = [folder / group for folder in folders if group and "." not in group]
    files = [file.name for folder in below if folder.is_dir() for file in folder.iterdir()]
    return [name.removesuffix(".yaml") for name in files if name.endswith(".yaml")]


def first_line(error: BaseException) -> str:
    """The first line of an error, which is seldom the whole of Hydra's; of a yaml file, where."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, YAMLError):
        return " ".join(str(error).split())
    if lines[0].endswith(":"):
        return " ".join(lines[:3])  # with the reason, and the key
    is_sweep = lines[0].startswith("Ambiguous value")
    return lines[0] + "; a list is [a,b], and several runs need -m" * is_sweep


def _why(compose: Compose, overrides: Sequence[str]) -> str:
    """Why overrides do not compose; else empty."""
    try:
        compose(overrides)
    except (*NOT_COMPOSED, ValueError, AssertionError) as error:  # of a name that is no text
        has_reason = str(error).startswith(("Error merging override", "Could not override"))
        return first_line(error.__cause__ if has_reason and error.__cause__ else error)
    return ""


def _nearest_key(key: str, known: Sequence[str]) -> str:
    """Where a key that does not exist may belong."""
    root, _, below = key.partition(".")
    inside = {n.removeprefix(f"{root}."): n for n in known if below and n.startswith(f"{root}.")}
    names, wrong = (inside, below) if inside else ({name: name for name in known}, key)
    same = [name for name in names.values() if name.endswith(f".{wrong}")]
    if near := same or [names[name] for name in get_close_matches(wrong, names, n=1)]:
        return f"did you mean {near[0]}?"
    if not inside:
        return "--cfg job shows all keys"
    own = [name for name in inside if "." not in name and name[0] != "_"]
    return f"it has {', '.join(own)}" if own else f"another {root}=... may have it"


def _dotted(node: Any, path: str = "") -> Iterator[str]:
    """Every key of plain content, sections included."""
    for name, value in node.items() if isinstance(node, dict) else ():
        yield (own := f"{path}{name}")
        yield from _dotted(value, f"{own}.")
