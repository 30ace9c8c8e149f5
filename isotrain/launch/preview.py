"""`isotrain study list NAME`: what a study would run, before anything is started."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from isotrain.runs.secrets import redacted
from isotrain.study.definition import Study
from isotrain.study.history import listed
from isotrain.study.plan import SHARED, in_force


def preview(study: Study, question: str = "", overrides: Sequence[str] = ()) -> list[str]:
    r"""Lines with the number of runs, what all of them have, and what each task and arm has.

    The arms are those of the grid, too. `overrides` are those of the command line.

    >>> arms = {"none": ("isotropy=none",), "mean": ("isotropy=mean", "site=[tokens]")}
    >>> study = Study("two", ("encoder=tiny",), {"rte": ("task=rte",)}, arms, "none", (0, 1, 2))
    >>> print(*preview(study, "does it help?", ["threads=2"]), sep="\n")
    study two: 1 task × 2 arms × 3 seeds = 6 runs; does it help?
    every run: threads=2 encoder=tiny
    task rte: task=rte
    arm none: isotropy=none; the baseline
    arm mean: isotropy=mean 'site=[tokens]'
    seeds: 0-2
    """
    parts = (("task", study.tasks), ("arm", study.arms), ("seed", study.seeds))
    counts = [f"{len(own)} {name}{'s' * (len(own) != 1)}" for name, own in parts]
    n_runs = len(study.tasks) * len(study.arms) * len(study.seeds)
    lines = [
        f"study {study.name}: {' × '.join(counts)} = {n_runs} runs"
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


def one_line(overrides: Sequence[str]) -> str:
    """Overrides as a command line has them, without secrets.

    >>> one_line(["site=[tokens]", "seed=1"])
    "'site=[tokens]' seed=1"
    """
    return shlex.join(redacted(list(overrides))) or "nothing of its own"
