"""What finished runs left: their scores, how many rows each score is of, what is missing."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from isotrain.keys import SIDES, Place, place_of
from isotrain.results import read_result
from isotrain.study.plan import Job

SPLITS = {"val": "dev", "test": "test"}  # stage of a score's key: the rows it is of
DAMAGE = (OSError, ValueError, KeyError, TypeError, AttributeError)  # what a damaged file raises


class Run(NamedTuple):
    """The scores of one finished run."""

    task: str
    arm: str
    seed: int
    scores: Mapping[str, float]  # every finite one
    shown: Mapping[str, int]  # keys that a table shows, the monitored one first; the N of each
    degenerate: str = ""  # why it is, in words
    folder: Path = Path()
    code: str = ""  # commit, with + where the tree was changed
    finished_at: str = ""
    data: str = ""  # revision of the data set
    sizes: Mapping[str, int] = {}  # rows of each split

    @property
    def monitor(self) -> str:
        """The key of the monitored score, which is of dev."""
        return next(iter(self.shown), "")

    @property
    def name(self) -> str:
        """Its folder, as it is called under any output folder.

        >>> Run("rte", "none", 0, {}, {}, folder=Path("runs/rte/none-0123456789")).name
        'rte/none-0123456789'
        """
        return f"{self.folder.parent.name}/{self.folder.name}"

    def n_rows(self, key: str) -> int | None:
        """The rows N that a score is of; None where that is not known."""
        if place := read_place(key):
            n = self.scores.get(counted_by(place))
            return None if n is None else int(n)
        return self.sizes.get(SPLITS.get(key.partition("/")[0], ""))


read_place = cache(place_of)  # a thousand runs have the same thousand keys


@cache
def counted_by(place: Place) -> str:
    """The key of the number of rows that were measured at a place."""
    return place._replace(metric="n_rows").key


def collect(jobs: Sequence[Job]) -> tuple[list[Run], list[str]]:
    """The finished runs in plan order, and a line for every score that is missing.

    A score that is not finite counts as missing, and so does a run whose `result.json` is damaged;
    that file stays as it is.
    """
    runs, missing = [], []
    for job in jobs:
        place = f"{job.task}, {job.arm}, seed {job.seed}"
        try:
            result = read_result(job.folder)
            if not result:
                missing.append(f"{place}: not run")
            elif result["status"] != "finished":
                missing.append(f"{place}: {unfinished(result)}")
            else:
                run = run_of(result, job.folder, job.task, job.arm, job.seed)
                missing += [f"{place}: no finite {k}" for k in run.shown if k not in run.scores]
                runs.append(run)
        except DAMAGE as error:
            missing.append(f"{place}: {damaged(error)}")
    return runs, missing


def run_of(result: Mapping[str, Any], folder: Path, task: str, arm: str, seed: int) -> Run:
    """The finished run that a `result.json` records.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is not as a run writes it.
    """
    scores = {k: v for k, v in sorted(result["scores"].items()) if math.isfinite(v)}
    sizes = {split: int(n) for split, n in result["n_rows"].items()}
    return Run(
        *(task, arm, seed, scores, _shown(result, scores, sizes)),
        degenerate=str(result.get("degenerate_reason", "")),
        folder=folder,
        code=_code(result.get("environment", {})),
        finished_at=str(result.get("finished_at", "")),
        data=_without_folders(str(result.get("data", ""))),
        sizes=sizes,
    )


def unfinished(result: Mapping[str, Any]) -> str:
    """How far a run is that has not finished, with the kind of its error.

    >>> unfinished({"status": "failed", "error": "OSError: /home/me/runs is full"})
    'failed (OSError)'
    """
    error = str(result.get("error", "")).partition(":")[0]  # the rest may hold paths
    return f"{result['status']}{f' ({error})' if error else ''}"


def damaged(error: Exception) -> str:
    """What is told of a `result.json` that cannot be read, without its place.

    >>> damaged(KeyError("scores"))
    "damaged: result.json (KeyError: 'scores')"
    """
    reason = error.strerror if isinstance(error, OSError) else error
    return f"damaged: result.json ({type(error).__name__}: {reason})"


def _shown(
    result: Mapping[str, Any], scores: Mapping[str, float], sizes: Mapping[str, int]
) -> dict[str, int]:
    """The monitored score, its test twin, and the headline metric where it says most.

    That is: on the last layer's tokens, and before and after the isotropy layer.
    """
    monitor = str(result["monitor"])
    shown = {monitor: sizes["dev"]}
    if (test := monitor.replace("val/", "test/")) in result["scores"]:
        shown[test] = sizes["test"]
    metrics = result.get("headline") or result.get("config", {}).get("metric", {})
    metric = next(iter(metrics), "")
    places = [p for key in result["scores"] if (p := read_place(key)) and p.metric == metric]
    layers = sorted((p for p in places if p.view == "tokens"), key=lambda p: p.where)
    sites = sorted(
        (p for p in places if p.view in SIDES), key=lambda p: (p.where, p.view == "after")
    )
    for place in [*layers[-1:], *sites]:
        shown[place.key] = int(scores[counted_by(place)])
    return shown


def _code(environment: Mapping[str, Any]) -> str:
    """Which code made a run: the commit, or the version of a package without one.

    >>> _code({"git": "409ac3058d23-dirty"}), _code({"git": None, "isotrain": "0.1.0"}), _code({})
    ('409ac3058d23+', 'isotrain 0.1.0', '')
    """
    if git := environment.get("git"):
        return str(git).removesuffix("-dirty") + "+" * str(git).endswith("-dirty")
    return f"isotrain {environment['isotrain']}" if "isotrain" in environment else ""


def _without_folders(revision: str) -> str:
    """A revision of data, which is the same wherever their files lie.

    >>> _without_folders("/home/me/data/rte (sha256 0123456789ab); init_from 0a1b")
    'sha256 0123456789ab; init_from 0a1b'
    """
    return re.sub(r"[^;]+ \((sha256 \w+)\)", r"\1", revision)
