"""Collect results of finished runs: scores, number of examples, missing scores."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from isotrain.runs.files import DamagedError, read_result
from isotrain.runs.keys import SIDES, CurveKey, last_layer, on_test, parse_key, shown_view
from isotrain.runs.lost_input import lost_text
from isotrain.runs.stored import is_owned

if TYPE_CHECKING:  # a run alone needs no study
    from isotrain.studies.call import Job

SPLITS = {"val": "dev", "test": "test"}  # stage of a score's key: its split
LESS_NULL = "partition_less_null"  # ln I(W) minus the median of its null
BESIDE = ("mean_cosine", LESS_NULL)  # metrics shown with the first headline metric
VIEWS_OF = {
    "ClsPooling": "cls",
    "MeanPooling": "mean",
    "LastPooling": "last",
}  # of the last layer, by pooling
NOT_RUN = "not run"
DAMAGE = (OSError, DamagedError)


class Run(NamedTuple):
    """The scores of one finished run."""

    task: str
    method: str
    seed: int
    scores: Mapping[str, float]  # every finite one
    shown: Mapping[str, int]  # keys shown in tables, the monitored one first, with N
    degenerate: str = ""  # the reason, in words
    folder: Path = Path()
    code: str = ""  # commit, with + for uncommitted changes
    finished_at: str = ""
    data: str = ""  # revision of the data set
    drawn: str = ""  # which of its splits were drawn from which rows
    mode: str = "max"  # max | min: which values of the monitored score are better
    select: str = ""  # last | best | holdout: which weights were scored
    n_candidates: int = 0  # checkpoints that the weights were selected from
    limited: str = ""  # the scored examples, if not all of a split
    lost: str = ""  # what was cut or left out of the input
    encoder: str = ""

    @property
    def monitor(self) -> str:
        """Key of the monitored score, on dev."""
        return next(iter(self.shown), "")

    @property
    def twin(self) -> str:
        """Key of the same score on test."""
        return on_test(self.monitor)

    @property
    def name(self) -> str:
        """Its folder, relative to the output folder."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    def is_best_of(self, key: str) -> bool:
        """Whether a score was used to select its weights, and so is the best of several."""
        is_monitored = key == self.monitor and key.startswith("val/")
        return is_monitored and self.select == "best" and self.n_candidates > 1


class Gap(NamedTuple):
    """A run without scores, or without one score."""

    task: str
    method: str
    seed: int
    why: str
    has_failed: bool = False  # because of what it computes, not just unfinished
    score: str = ""  # the missing one; "" for all

    def __str__(self) -> str:
        return f"{self.task}, {self.method}, seed {self.seed}: {self.why}"


read_key = cache(parse_key)  # a thousand runs share a thousand keys


@cache
def counted_by(key: str) -> str:
    """Key of the number of embeddings behind an isotropy value; empty for a score."""
    curve_key = read_key(key)
    return curve_key._replace(metric="n_rows").text if curve_key else ""


def collect(jobs: Sequence[Job]) -> tuple[list[Run], list[Gap]]:
    """The finished runs in plan order, and every score that is missing.

    Non-finite scores count as missing, and so do runs with a damaged file.
    """
    runs, gaps = [], []
    for job in jobs:
        job_key = (job.task, job.method, job.seed)
        try:
            result = read_result(job.folder)
            if not result:
                gaps.append(Gap(*job_key, NOT_RUN))
            elif result["status"] != "finished":
                is_stale = result["status"] == "running" and not is_owned(job.folder)
                reason = "interrupted" if is_stale else unfinished(result)
                gaps.append(Gap(*job_key, reason, result["status"] == "failed"))
            else:
                run = run_of(result, job.folder, *job_key)
                missing_keys = [key for key in run.shown if key not in run.scores]
                gaps += [Gap(*job_key, f"no finite {key}", True, key) for key in missing_keys]
                runs.append(run)
        except DamagedError as error:  # one that cannot be read now may be intact: no table
            gaps.append(Gap(*job_key, damaged(error)))
    return runs, gaps


def run_of(result: Mapping[str, Any], folder: Path, task: str, method: str, seed: int) -> Run:
    """The finished run of a `result.json`; raises one of `DAMAGE` if it was changed."""
    scores = finite(result["scores"])
    sizes = {split: int(n) for split, n in result["n_rows"].items()}
    return Run(
        *(task, method, seed, scores, _shown(result, scores, sizes)),
        degenerate=str(result.get("degenerate_reason", "")),
        folder=folder,
        code=_code(result),
        finished_at=str(result.get("finished_at", "")),
        data=str(result.get("data", "")),
        drawn=str(result.get("drawn_splits", "")),
        mode=str(result.get("mode", "max")),
        select=str(result.get("select", "")),
        n_candidates=int(result.get("n_candidates", 0)),
        limited=limited_text(result),
        lost=lost_text(result.get("lost_input", {})),
        encoder=str(result.get("encoder", "")),
    )


def finite(record: Mapping[str, Any]) -> dict[str, float]:
    """The finite values of a record by key, with ln I(W) minus its null for every cloud.

    >>> at = {"isotropy/partition/pooled/after": -2.0, "val/loss": math.nan}
    >>> at["isotropy/partition_null_median/pooled/after"] = -0.5
    >>> finite(at)["isotropy/partition_less_null/pooled/after"]
    -1.5
    """
    values = {k: v for k, v in record.items() if isinstance(v, int | float) and math.isfinite(v)}
    for less_key, key, null_key in _nulls(tuple(values)):
        values[less_key] = values[key] - values[null_key]
    return dict(sorted(values.items()))


@cache  # runs of a study share their keys
def _nulls(keys: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Keys of ln I(W) minus its null, of ln I(W), and of its null, if both are logged."""
    curves = [c for key in keys if (c := read_key(key)) and c.metric == "partition_null_median"]
    pairs = [tuple(c._replace(metric=m).text for m in (LESS_NULL, "partition")) for c in curves]
    key_set = set(keys)
    return [(less, v, c.text) for c, (less, v) in zip(curves, pairs, strict=True) if v in key_set]


def limited_text(result: Mapping[str, Any]) -> str:
    """Which examples were scored, if not all of a split.

    >>> limited_text({"limited_evaluation": {"test": {"scored": 500, "of": 1400}}})
    '500 of the 1,400 examples of test'
    """
    limits = (result.get("limited_evaluation") or {}).items()
    return ", ".join(
        f"{part['scored']:,} of the {part['of']:,} examples of {split}" for split, part in limits
    )


def unfinished(result: Mapping[str, Any]) -> str:
    """Progress of an unfinished run, with the kind of its error."""
    error = str(result.get("error", "")).partition(":")[0]  # the rest may contain paths
    return f"{result['status']}{f' ({error})' if error else ''}"


def damaged(error: OSError | DamagedError) -> str:
    """Message about an unreadable file of a run, without its path."""
    if isinstance(error, DamagedError):
        return f"damaged: {error.path.name} ({error.reason})"
    return f"damaged: result.json ({error.strerror})"


def _shown(
    result: Mapping[str, Any], scores: Mapping[str, float], sizes: Mapping[str, int]
) -> dict[str, int]:
    """Keys shown in tables, with their N: scores, then isotropy.

    The monitored score, on dev and test; for an accuracy, also the test log loss, raw and
    temperature-scaled. Isotropy of the encoder output (the last layer, in the pooled view, before
    any layer at that site) by the first headline metric, mean cosine and ln I(W) minus its null; of
    the output of each site by the same three; of its input by the first only. The encoder output is
    left out if a layer below the last block changes it.
    """
    monitor = str(result["monitor"])
    shown = {monitor: sizes["dev"]}
    test_keys = [on_test(monitor)]
    test_keys += ["test/loss", "test/scaled_loss"] if monitor == "val/accuracy" else []
    all_scores = {**result["scores"], **scores}  # `collect` reports non-finite ones as missing
    shown |= {key: sizes["test"] for key in test_keys if key in all_scores}
    config = result.get("config", {})
    metric = next(iter(result.get("headline") or config.get("metric", {})), "")
    pooling = str(config.get("pooling", {}).get("_target_", "")).rpartition(".")[2]
    for curve in _clouds(tuple(all_scores), metric, VIEWS_OF.get(pooling, "tokens")):
        shown[curve.text] = int(scores.get(counted_by(curve.text), 0))
    return shown


@cache  # runs of a study share their keys
def _clouds(keys: tuple[str, ...], metric: str, pooled: str) -> list[CurveKey]:
    """Isotropy values shown in tables, if logged; `pooled` is the view that pooling reads."""
    curves = [curve for key in keys if (curve := read_key(key))]
    last = last_layer(curves)
    view = shown_view({c.view for c in curves if c.where == last}, pooled)
    is_behind = any(c.view == "before" and c.where.startswith("layer_") for c in curves)
    names = dict.fromkeys((metric, *BESIDE))
    encoder_curves = [] if is_behind else [CurveKey(name, last, view) for name in names]
    site_curves = [
        CurveKey(*parts)
        for where in sorted({c.where for c in curves if c.view in SIDES})
        for parts in ((metric, where, "before"), *((name, where, "after") for name in names))
    ]
    key_set = set(keys)
    return [c for c in (*encoder_curves, *site_curves) if c.text in key_set]


def _code(result: Mapping[str, Any]) -> str:
    """Code versions of a run: of each attempt that it resumed, then of the last one."""
    environments = [*result.get("earlier_environments", []), result.get("environment", {})]
    codes = [_version(environment) for environment in environments]
    return " > ".join(code for code, _ in groupby(codes))


def _version(environment: Mapping[str, Any]) -> str:
    """The commit, with + and an id of uncommitted changes; without a commit, the version."""
    if git := environment.get("git"):
        return re.sub(r"-dirty-?(\w*)$", r"+\1", str(git))
    return f"isotrain {environment['isotrain']}" if "isotrain" in environment else ""
