"""`sweep=NAME` on a command line: the several values that a file of `conf/sweep` gives to keys."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, RangeSweep
from hydra.errors import HydraException
from omegaconf import DictConfig

from isotrain.config.binding import nearest
from isotrain.config.command import check_command
from isotrain.config.several_runs import content_of, names, text_of
from isotrain.config.written import key_of, written

GROUP = "sweep"  # folder of its files
SWEEP, SWEEPER = "sweep=", "hydra/sweeper="
FOLDER_KEY = r"[+~]*hydra\.sweep\b"  # of overrides that would move the folder of a sweep


def check_sweep(
    overrides: Sequence[str], config_dir: str | None = None, multirun: bool = False
) -> tuple[DictConfig | None, list[str], list[str]]:
    """As `check_command`, and between its two the overrides with each `sweep=NAME` spelled out."""
    mistakes = [
        f"{text} is not yours to choose: a sweep has a folder of its own, "
        "<output_dir>/.multirun/<time>, with one for each job; leave it out, or use output_dir=..."
        for text in overrides
        if multirun and re.match(FOLDER_KEY, text)
    ]
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
        chosen_names = override.value()
        for name in chosen_names if isinstance(chosen_names, list) else [chosen_names]:
            found |= _read(str(name), config_dir)
    given = {key_of(text) for text in own}
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


def n_jobs(overrides: Sequence[str]) -> int | None:
    """The number of jobs of a grid; None where it shows later, as in a search.

    >>> n_jobs(["seed=range(5)", "site=[tokens],[pooled]", "task=rte"]), n_jobs(["task=glob(*)"])
    (10, None)
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    swept = [override for override in parsed if override.is_sweep_override()]
    known = all(isinstance(o.value(), ChoiceSweep | RangeSweep) for o in swept)
    if (
        not known
        or is_search(overrides)
        or any("hydra.sweeper.params" in text for text in overrides)
    ):
        return None
    return math.prod(len(list(override.sweep_string_iterator())) for override in swept)


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
    own = {} if config_dir is None else {p.stem: p for p in Path(config_dir, GROUP).glob("*.yaml")}
    if name not in (known := sorted({*own, *names(GROUP)})):
        raise ValueError(f"sweep={name} does not exist; {nearest(name, known, 'there are')}")
    content = content_of(text_of(GROUP, str(own.get(name, name))), f"sweep={name}")
    if not isinstance(content, dict) or not content:
        raise ValueError(f"sweep={name} must map keys to lists of values, such as seed: [0, 1, 2]")
    for key, values in content.items():
        if not (isinstance(values, str) or (isinstance(values, list) and values)):
            raise ValueError(
                f"sweep={name} gives {key} the value {values!r}; give a list such as [{values}], "
                "or a text as on the command line, such as range(5)"
            )
    try:
        return {
            str(key): values if isinstance(values, str) else ",".join(map(written, values))
            for key, values in content.items()
        }
    except ValueError as error:
        raise ValueError(f"sweep={name}: {error}") from error
