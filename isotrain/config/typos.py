"""Report all errors in the overrides of a command line that does not compose."""

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

    `compose` is Hydra's, of the same root. Empty if each override composes alone.
    """
    messages, key_overrides, choices = [], list[Override](), list[str]()
    for text in overrides:
        try:
            values = alternatives(text)
        except HydraException as error:
            messages.append(f"{text} cannot be read: {first_line(error)}")
            continue
        options = options_of(values[0].key_or_group, config_dir)
        if not options or values[0].is_delete():
            key_overrides += [value for value in values if not value.is_hydra_override()]
            continue
        valid = []
        for value in values:
            raw: Any = value.value()
            entries = raw if isinstance(raw, list) else [raw]
            names = ["null" if entry is None else str(entry) for entry in entries]
            key = value.get_key_element()  # with its + and @package
            unknown = (name for name in names if name not in options)
            if typos := [name for name in unknown if _why(compose, [f"{key}={name}"])]:
                hint = nearest(typos[0], sorted(options), "there are")
                messages.append(f"{key}={typos[0]} does not exist; {hint}")
            else:
                valid.append(str(value.input_line))
        choices += valid[:1]
    try:
        legal_keys = list(_dotted(OmegaConf.to_container(compose(choices), resolve=False)))
    except NOT_COMPOSED as error:
        return [*messages, first_line(error)]
    for override in key_overrides:
        if reason := _why(compose, [*choices, str(override.input_line)]):
            key = override.key_or_group
            is_plain = not (override.is_add() or override.is_force_add() or override.is_delete())
            is_missing = is_plain and key not in legal_keys
            hint = f"no key {key}; {_nearest_key(key, legal_keys)}"
            messages.append(hint if is_missing else f"{override.input_line}: {reason}")
    return list(dict.fromkeys(messages))


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
    """The names of a group's files, including `config_dir`; empty if it is no group."""
    folders = [shipped(), *([Path(config_dir)] if config_dir else [])]
    paths = [folder / group for folder in folders if group and "." not in group]
    names = [file.name for path in paths if path.is_dir() for file in path.iterdir()]
    return [name.removesuffix(".yaml") for name in names if name.endswith(".yaml")]


def first_line(error: BaseException) -> str:
    """The first line of an error, with Hydra's reason or the position in a yaml file."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, YAMLError):
        return " ".join(str(error).split())
    if lines[0].endswith(":"):
        return " ".join(lines[:3])  # with the reason, and the key
    is_sweep = lines[0].startswith("Ambiguous value")
    return lines[0] + "; a list is [a,b], and several runs need -m" * is_sweep


def _why(compose: Compose, overrides: Sequence[str]) -> str:
    """The reason why overrides do not compose; empty if they do."""
    try:
        compose(overrides)
    except (*NOT_COMPOSED, ValueError, AssertionError) as error:  # of a name that is no text
        has_reason = str(error).startswith(("Error merging override", "Could not override"))
        return first_line(error.__cause__ if has_reason and error.__cause__ else error)
    return ""


def _nearest_key(key: str, legal: Sequence[str]) -> str:
    """A hint for a key that does not exist: the nearest keys."""
    root, _, rest = key.partition(".")
    inside = {n.removeprefix(f"{root}."): n for n in legal if rest and n.startswith(f"{root}.")}
    names, typo = (inside, rest) if inside else ({name: name for name in legal}, key)
    matches = [name for name in names.values() if name.endswith(f".{typo}")]
    if near := matches or [names[name] for name in get_close_matches(typo, names, n=1)]:
        return f"did you mean {near[0]}?"
    if not inside:
        return "--cfg job shows all keys"
    children = [name for name in inside if "." not in name and name[0] != "_"]
    return f"it has {', '.join(children)}" if children else f"another {root}=... may have it"


def _dotted(node: Any, path: str = "") -> Iterator[str]:
    """Every key of plain content, sections included."""
    for name, value in node.items() if isinstance(node, dict) else ():
        yield (key := f"{path}{name}")
        yield from _dotted(value, f"{key}.")
