"""`sweep=NAME` on a command line: the several values that a file of `conf/sweep` gives to keys."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from isotrain.config.binding import nearest
from isotrain.config.command import check_command
from isotrain.config.compose import conf_folder

SWEEP, SWEEPER = "sweep=", "hydra/sweeper="


def check_sweep(
    overrides: Sequence[str], config_dir: str | None = None, multirun: bool = False
) -> tuple[DictConfig | None, list[str], list[str]]:
    """As `check_command`, and between its two the overrides with each `sweep=NAME` spelled out."""
    mistakes = []
    try:
        overrides = with_sweeps(overrides, multirun, config_dir)
    except ValueError as error:
        mistakes.append(str(error))
        overrides = [text for text in overrides if not text.startswith(SWEEP)]
    judged = ends_of_intervals(overrides) if is_search(overrides) else overrides
    cfg, found = check_command(judged, config_dir, multirun)
    return cfg, list(overrides), mistakes + found


def with_sweeps(
    overrides: Sequence[str], multirun: bool, config_dir: str | None = None
) -> list[str]:
    """The overrides with every `sweep=NAME` replaced by `key=value,value` of its file.

    `sweep=[layers,seeds]` crosses two files. A key that the command line gives too keeps what it
    says there; where two files give one, the later file counts. Jobs of the sweep have plain
    overrides then, so that each can be run again alone. Files of `config_dir` come first.

    Raises:
        ValueError: an unknown name, a file of another form, or a sweep without `-m`.

    >>> with_sweeps(["task=rte", "sweep=seeds"], multirun=True)
    ['seed=0,1,2,3,4', 'task=rte']
    """
    chosen = [text for text in overrides if text.startswith(SWEEP)]
    own = [text for text in overrides if text not in chosen]
    if chosen and not multirun:
        raise ValueError(f"{chosen[0]} gives several runs; add -m to start them")
    found: dict[str, str] = {}
    for text in chosen:
        try:
            override = OverridesParser.create().parse_override(text)
        except HydraException as error:
            raise ValueError(f"{text} cannot be read: {error}") from error
        if override.is_sweep_override():
            raise ValueError(
                f"{text} is to be one name, or several that are crossed: 'sweep=[a,b]'"
            )
        names = override.value()
        for name in names if isinstance(names, list) else [names]:
            found |= _read(str(name), config_dir)
    given = {text.lstrip("+~").partition("=")[0] for text in own}
    return [*(f"{key}={value}" for key, value in found.items() if key not in given), *own]


def is_search(overrides: Sequence[str]) -> bool:
    """Whether an adaptive sweeper chooses the values, trial by trial.

    >>> is_search(["hydra/sweeper=optuna"]), is_search(["hydra/sweeper=basic"])
    (True, False)
    """
    return any(text.startswith(SWEEPER) and text != f"{SWEEPER}basic" for text in overrides)


def swept_keys(overrides: Sequence[str]) -> list[str]:
    """The keys that a command line gives several values.

    >>> swept_keys(["seed=0,1", "task=rte", "site=[tokens],[pooled]"])
    ['seed', 'site']
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    return [override.get_key_element() for override in parsed if override.is_sweep_override()]


def ends_of_intervals(overrides: Sequence[str]) -> list[str]:
    """The overrides of a search with an interval's two ends in its place, which can be judged.

    >>> ends_of_intervals(["optimizer.lr=tag(log, interval(1e-5, 1e-3))", "seed=0,1"])
    ['optimizer.lr=1e-05,0.001', 'seed=0,1']
    """
    judged = []
    for text in overrides:
        try:
            value = OverridesParser.create().parse_override(text)._value
        except HydraException:  # whoever judges it says what is wrong
            value = None
        if isinstance(value, IntervalSweep):
            text = f"{text.partition('=')[0]}={value.start},{value.end}"
        judged.append(text)
    return judged


def _read(name: str, config_dir: str | None) -> dict[str, str]:
    """The keys of a file with their values as a command line has them."""
    folder = conf_folder()
    package = folder.removeprefix("pkg://")
    shipped: Any = Path(folder) if package == folder else files(package)
    places = (
        [shipped / "sweep"]
        if config_dir is None
        else [Path(config_dir) / "sweep", shipped / "sweep"]
    )
    options = {
        file.name.removesuffix(".yaml"): file
        for place in reversed(places)
        if place.is_dir()
        for file in place.iterdir()
        if file.name.endswith(".yaml")
    }
    if name not in options:
        raise ValueError(
            f"sweep={name} does not exist; {nearest(name, sorted(options), 'there are')}"
        )
    try:
        content: Any = OmegaConf.to_container(OmegaConf.create(options[name].read_text("utf-8")))
    except (YAMLError, OmegaConfBaseException) as error:
        raise ValueError(f"sweep={name} cannot be read: {error}") from error
    if not isinstance(content, dict) or not content:
        raise ValueError(f"sweep={name} must map keys to lists of values, such as seed: [0, 1, 2]")
    for key, values in content.items():
        if not (isinstance(values, str) or (isinstance(values, list) and values)):
            raise ValueError(
                f"sweep={name} gives {key} the value {values!r}; give a list such as [{values}], "
                "or a text as on the command line, such as range(5)"
            )
    return {
        str(key): values if isinstance(values, str) else ",".join(map(_text, values))
        for key, values in content.items()
    }


def _text(value: Any) -> str:
    """A value as an override has it.

    >>> _text(["tokens", "layer_3"]), _text(None), _text(True), _text(1e-5)
    ('[tokens,layer_3]', 'null', 'true', '1e-05')
    """
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)
