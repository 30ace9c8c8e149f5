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
from yaml import YAMLError, safe_load

from isotrain.config.shipped import shipped
from isotrain.console import nearest

Compose = Callable[[Sequence[str]], DictConfig]
NOT_COMPOSED = (HydraException, OmegaConfBaseException, YAMLError)  # what `Compose` raises


def mistakes(
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
            hint = f"cannot be read: {first_line(error)}"
            found.append(f"{text} {hint if '=' in text else 'is no key=value, such as task=wic'}")
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
            unknown = (f"{key}={name}" for name in names if name not in options)
            if wrong := [one for one in unknown if _why(compose, [one])]:
                hint = nearest(wrong[0].partition("=")[2], sorted(options), "there are")
                found.append(f"{wrong[0]} does not exist; {hint}")
            else:
                good.append(str(value.input_line))
        chosen += good[:1]
    try:
        cfg = compose(chosen)
    except NOT_COMPOSED as error:
        return [*found, first_line(error)]
    told = (_mistake(one, cfg, lambda own: compose([*chosen, *own]), config_dir) for one in keys)
    return list(dict.fromkeys([*found, *filter(None, told)]))


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


def options_of(group: str, config_dir: str | None = None) -> dict[str, Any]:
    """The files of a group by name, also those of `config_dir`; empty if it is none."""
    folders = [shipped(), *([Path(config_dir)] if config_dir else [])]
    below = [folder / group for folder in folders if group and "." not in group]
    files = [file for folder in below if folder.is_dir() for file in folder.iterdir()]
    return {f.name.removesuffix(".yaml"): f for f in files if f.name.endswith(".yaml")}


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
    except (*NOT_COMPOSED, ValueError) as error:
        return first_line(error)
    return ""


def _mistake(one: Override, cfg: DictConfig, compose: Compose, config_dir: str | None) -> str:
    """Why an override of a value does not apply to a configuration; else empty."""
    key = one.key_or_group
    if one.is_add() or one.is_force_add() or one.is_delete():
        why = _why(compose, [str(one.input_line)])
        return why and f"{one.input_line}: {why}"
    if not _has(cfg, key):
        return f"no key {key}; {_nearest_key(key, cfg, config_dir)}"
    try:
        OmegaConf.update(cfg, key, one.value())
    except NOT_COMPOSED as error:
        return f"{one.input_line}: {first_line(error)}"
    return ""


def _has(cfg: DictConfig, key: str) -> bool:
    """Whether a configuration has a key, also if it refers to what there is not."""
    if OmegaConf.select(cfg, key, default=..., throw_on_resolution_failure=False) is not ...:
        return True
    return key in _dotted(OmegaConf.to_container(cfg, resolve=False))


def _nearest_key(key: str, cfg: DictConfig, config_dir: str | None) -> str:
    """Where a key that does not exist may belong."""
    root, _, below = key.partition(".")
    files = options_of(root, config_dir) if below and root in cfg else {}
    if having := [name for name, file in files.items() if below in _keys_of(file)]:
        return f"it belongs to {root}={', '.join(sorted(having))}"
    known = list(_dotted(OmegaConf.to_container(cfg, resolve=False)))
    inside = [name for name in known if below and name.startswith(f"{root}.")]
    names = {name.removeprefix(f"{root}."): name for name in inside} or {n: n for n in known}
    wrong = below if inside else key
    same = [name for name in names.values() if name.endswith(f".{wrong}")]
    if near := same or [names[name] for name in get_close_matches(wrong, names, n=1)]:
        return f"did you mean {near[0]}?"
    if not inside:
        return "--cfg job shows all keys"
    own = [name for name in names if "." not in name and name[0] != "_"]
    has = f"it has {', '.join(own) or 'no key'}"
    return f"{has}; +{key}=... adds another argument" if "_target_" in names else has


def _keys_of(file: Any) -> set[str]:
    try:
        return set(_dotted(safe_load(file.read_text(encoding="utf-8"))))
    except YAMLError:  # told where it is chosen
        return set()


def _dotted(node: Any, path: str = "") -> Iterator[str]:
    """Every key of plain content, sections included."""
    for name, value in node.items() if isinstance(node, dict) else ():
        yield (own := f"{path}{name}")
        yield from _dotted(value, f"{own}.")
