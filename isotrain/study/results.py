"""What the runs of a study left: their scores, how many rows each score is of, what is missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from isotrain.keys import SIDES, place_of
from isotrain.results import read_result
from isotrain.study.plan import Job


class Run(NamedTuple):
    """The scores of one finished run."""

    task: str
    arm: str
    seed: int
    scores: dict[str, float]  # every finite one
    shown: dict[str, int]  # the keys a table shows, and the rows N behind each
    degenerate: str = ""  # why it is, in words


def collect(jobs: Sequence[Job]) -> tuple[list[Run], list[str]]:
    """The finished runs in plan order, and a line for every score that is missing.

    A score that is not finite counts as missing.
    """
    runs, missing = [], []
    for job in jobs:
        result = read_result(job.folder)
        place = f"{job.task}, {job.arm}, seed {job.seed}"
        if not result:
            missing.append(f"{place}: not run")
        elif result["status"] != "finished":
            error = str(result.get("error", "")).partition(":")[0]  # the rest may hold paths
            missing.append(f"{place}: {result['status']}{f' ({error})' if error else ''}")
        else:
            scores = {k: v for k, v in sorted(result["scores"].items()) if math.isfinite(v)}
            shown = _shown(job, result, scores)
            missing += [f"{place}: no finite {key}" for key in shown if key not in scores]
            reason = str(result.get("degenerate_reason", ""))
            runs.append(Run(job.task, job.arm, job.seed, scores, shown, reason))
    return runs, missing


def _shown(job: Job, result: dict[str, Any], scores: dict[str, float]) -> dict[str, int]:
    """The monitored score, its test twin, and the headline metric where it says most.

    That is: on the last layer's tokens, and before and after the isotropy layer.
    """
    monitor, n_rows = str(result["monitor"]), result["n_rows"]
    shown = {monitor: int(n_rows["dev"])}
    if (test := monitor.replace("val/", "test/")) in result["scores"]:
        shown[test] = int(n_rows["test"])
    metric = (result.get("headline") or [*job.cfg.metric, ""])[0]
    places = [p for key in result["scores"] if (p := place_of(key)) and p.metric == metric]
    layers = sorted((p for p in places if p.view == "tokens"), key=lambda p: p.where)
    sites = sorted(
        (p for p in places if p.view in SIDES), key=lambda p: (p.where, p.view == "after")
    )
    for place in [*layers[-1:], *sites]:
        shown[place.key] = int(scores[place._replace(metric="n_rows").key])
    return shown
