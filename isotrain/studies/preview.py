"""`isotrain run NAME --list`: what a study or search would run, before anything is started."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from isotrain.runs.secrets import redacted
from isotrain.studies.definition import Study
from isotrain.studies.history import listed
from isotrain.studies.plan import SHARED, in_force
from isotrain.studies.search import Search
from isotrain.studies.space import Parameter


def preview_study(study: Study, question: str = "", overrides: Sequence[str] = ()) -> list[str]:
    r"""Lines with the number of runs, what all of them have, and what each task and arm has.

    The arms are those of the grid, too. `overrides` are those of the command line.

    >>> arms = {"none": ("isotropy=none",), "mean": ("isotropy=mean", "site=[tokens]")}
    >>> study = Study("two", ("encoder=tiny",), {"rte": ("task=rte",)}, arms, "none", (0, 1, 2))
    >>> print(*preview_study(study, "does it help?", ["threads=2"]), sep="\n")
    study two: 1 task × 2 arms × 3 seeds = 6 runs; does it help?
    every run: threads=2 encoder=tiny
    task rte: task=rte
    arm none: isotropy=none; the baseline
    arm mean: isotropy=mean 'site=[tokens]'
    seeds: 0-2
    """
    parts = (("task", study.tasks), ("arm", study.arms), ("seed", study.seeds))
    counts = [f"{len(own)} {name}{'s' * (len(own) != 1)}" for name, own in parts]
    lines = [
        f"study {study.name}: {' × '.join(counts)} = {study.n_runs} runs"
        + f"; {question}" * bool(question),
        f"every run: {one_line(in_force((*SHARED, *study.overrides, *overrides)))}",
        *(f"task {task}: {one_line(own)}" for task, own in study.tasks.items()),
    ]
    for arm, own in study.arms.items():
        lines.append(f"arm {arm}: {one_line(own)}" + "; the baseline" * (arm == study.baseline))
    lines.append(f"seeds: {listed(study.seeds)}")
    if study.margin is not None:
        lines.append(f"margin: {study.margin:g}")
    if study.margin_share is not None:
        lines.append(f"margin: {study.margin_share:g} of what fine-tuning gains")
    return lines


def preview_search(search: Search, question: str = "", overrides: Sequence[str] = ()) -> list[str]:
    r"""Lines with the number of trials, what all runs have, and what each key is chosen from.

    >>> space = (Parameter("isotropy", ("none", "clip")), Parameter("optimizer.lr", low=1, high=2))
    >>> print(*preview_search(Search("few", space, 4, ("encoder=tiny",), seeds=(0, 1))), sep="\n")
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


def one_line(overrides: Sequence[str]) -> str:
    """Overrides as a command line has them, without secrets.

    >>> one_line(["site=[tokens]", "seed=1"])
    "'site=[tokens]' seed=1"
    """
    return shlex.join(redacted(list(overrides))) or "nothing of its own"
