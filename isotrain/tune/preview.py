"""`isotrain tune list NAME`: what a search would try, before anything is started."""

from __future__ import annotations

from collections.abc import Sequence

from isotrain.launch.preview import one_line
from isotrain.study.history import listed
from isotrain.study.plan import SHARED, in_force
from isotrain.tune.definition import Search
from isotrain.tune.space import Parameter


def preview(search: Search, question: str = "", overrides: Sequence[str] = ()) -> list[str]:
    r"""Lines with the number of trials, what all runs have, and what each key is chosen from.

    `overrides` are those of the command line.

    >>> space = (Parameter("isotropy", ("none", "clip")), Parameter("optimizer.lr", low=1, high=2))
    >>> print(*preview(Search("few", space, 4, ("encoder=tiny",), seeds=(0, 1))), sep="\n")
    search few: 4 trials × 2 seeds = 8 runs
    every run: threads=1 encoder=tiny
    isotropy: none, clip
    optimizer.lr: 1 to 2
    seeds: 0, 1
    sampler: tpe, pruner: median
    """
    n_trials, n_seeds = search.n_trials, len(search.seeds)
    counts = f"{n_trials} trial{'s' * (n_trials != 1)} × {n_seeds} seed{'s' * (n_seeds != 1)}"
    return [
        f"search {search.name}: {counts} = {n_trials * n_seeds} runs"
        + f"; {question}" * bool(question),
        f"every run: {one_line(in_force((*SHARED, *search.overrides, *overrides)))}",
        *(f"{parameter.key}: {spelled(parameter)}" for parameter in search.space),
        f"seeds: {listed(search.seeds)}",
        f"sampler: {search.sampler}, pruner: {search.pruner}",
    ]


def spelled(parameter: Parameter) -> str:
    """What a key is chosen from, in words.

    >>> spelled(Parameter("x", low=1, high=9, step=2, when={"isotropy": ("clip", "mean")}))
    '1 to 9, step 2, where isotropy=clip or mean'
    """
    text = ", ".join(parameter.options) or f"{parameter.low} to {parameter.high}"
    text += ", log" * parameter.log + (f", step {parameter.step}" if parameter.step else "")
    beside = [f"{key}={' or '.join(options)}" for key, options in parameter.when.items()]
    return text + (f", where {' and '.join(beside)}" if beside else "")
