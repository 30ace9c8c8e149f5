"""Faults of a run, and limitations of its numbers."""

from collections.abc import Mapping
from typing import Any

from isotrain.results.numbers import number
from isotrain.results.readings import view_titles
from isotrain.results.runs import limited_text
from isotrain.results.series import Rows, Series, at, by_n, end_of, isotropy_series, series
from isotrain.runs.keys import CurveKey
from isotrain.runs.lost_input import lost_text

FEW_ROWS = 1000  # dev examples below which a warning is shown
FAR = 2.0  # between the embeddings of a queue and of dev; a warning is shown above it
FEW_OF_BATCH = 8  # batch size below which a queue reaches far back
GAP, SPREAD = "/queue_gap", "/queue_spread"
FEW_OF_WIDTH = 10  # N over D below which isotropy is biased


def faults(result: Mapping[str, Any], rows: Rows = (), has_checkpoint: bool = False) -> list[str]:
    """Faults of a run: it has not finished, or it collapsed.

    `has_checkpoint`: the same command resumes from a checkpoint.
    """
    found = []
    status = result.get("status", "unknown")
    if status != "finished":
        error = f": {result['error']}" if result.get("error") else ""
        last = (
            f"the last record is of step {rows[-1]['step']:.0f}" if rows else "nothing was logged"
        )
        over = status in ("failed", "interrupted")
        same = "The same" if over else "If it is no longer running, the same"
        again = (
            "resumes from the last checkpoint" if has_checkpoint else "starts it from the beginning"
        )
        found.append(f"The run is not finished ({status}{error}): {last}. {same} command {again}.")
    if result.get("degenerate"):
        found.append(f"The run is degenerate: {result.get('degenerate_reason')}.")
    return found


def warnings(result: Mapping[str, Any], rows: Rows) -> list[str]:
    """Limitations that a reader of the numbers must know, in addition to `faults`."""
    curves = isotropy_series(rows)
    found = []
    lost = [p for p in curves if p.metric == "n_rows_not_finite" and any(v for _, v in curves[p])]
    if lost:
        clouds = ", ".join(sorted({f"{p.where}/{p.view}" for p in lost}))
        found.append(f"Embeddings that are not finite were left out of {clouds}.")
    broken = sorted({k for row in rows for k, v in row.items() if isinstance(v, float) and v != v})
    if broken:
        more = f" and {len(broken) - 5} more" if len(broken) > 5 else ""
        found.append(f"Not a number at some step: {', '.join(broken[:5])}{more}.")
    found += selection(result)
    if part := limited_text(result):
        found.append(f"Scores are of {part}: a fixed random subset (data.n_dev, data.n_test).")
    if lost_input := lost_text(result.get("lost_input", {})):
        found.append(f"Input: {lost_input}.")
    found += unlike_texts(result, rows)
    if 0 < (n := n_evaluated(result, rows, "val")) < FEW_ROWS:
        found.append(f"Dev has {n:,} examples: small differences of its score are chance.")
    found += _few_rows(result, curves)
    if not curves:
        found.append("No isotropy was measured in this run.")
    return found


def unlike_texts(result: Mapping[str, Any], rows: Rows) -> list[str]:
    """Warnings for isotropy layers whose queue is unlike the embeddings of the last evaluation.

    That is a gap above `FAR`, or a spread above `FAR` or below its inverse.
    """
    layer = (result.get("config") or {}).get("isotropy") or {}
    if layer.get("stats") == "start" and layer.get("eval_stats") == "refit":
        return []  # its map does not come from the queue
    end = end_of(result, rows).step
    found = []
    for site in sorted({key.split("/")[1] for row in rows for key in row if key.endswith(GAP)}):
        gap, spread = (at(series(rows, f"val/{site}{name}"), end) for name in (GAP, SPREAD))
        if gap > FAR or spread > FAR or spread < 1 / FAR:  # false for NaN
            found.append(
                f"The layer at {site} is frozen on embeddings unlike those of dev: the means are "
                f"{number(gap)} rms distances apart (0 = alike), the spread of its queue is "
                f"{number(spread)} times theirs (1 = alike). Its map does not fit them: "
                f"{_way_out(result)}."
            )
    return found


def _way_out(result: Mapping[str, Any]) -> str:
    """How to make a layer's queue match its evaluation data; a larger batch comes first."""
    n = ((result.get("config") or {}).get("data") or {}).get("batch_size", FEW_OF_BATCH)
    ways = "use statistics without dropout (isotropy.eval_stats=refit), or less dropout"
    if n >= FEW_OF_BATCH:
        return ways
    slow = f"data.batch_size={n} fills the queue over many steps, in which the encoder moves"
    return f"{slow}: raise it; else {ways}"


def selection(result: Mapping[str, Any]) -> list[str]:
    """How the weights of a run were selected, if by evaluations; early stopping."""
    found = []
    step, n = result.get("selected_step"), result.get("n_candidates")
    asked = result.get("config", {}).get("training", {}).get("select", "last")
    best = f"The weights are those of step {step}, the best of {n} evaluations on"
    if result.get("select") == "best":
        found.append(f"{best} dev: the dev score is optimistic, the test score is not.")
    elif result.get("select") == "holdout":
        found.append(f"{best} {result['n_rows']['holdout']:,} held-out training examples.")
    elif asked != "last":
        found.append(f"No evaluation had a score for training.select={asked}: the last weights.")
    if result.get("stopped_early"):
        found.append(f"Training was stopped early, after step {result.get('steps')}.")
    return found


def n_evaluated(result: Mapping[str, Any], rows: Rows, stage: str) -> int:
    """Examples behind a score: the logged number of evaluated ones, else the size of the split."""
    values = series(rows, f"{stage}/n_rows")
    split = "dev" if stage == "val" else stage
    return int(values[-1][1] if values else (result.get("n_rows") or {}).get(split, 0))


def _few_rows(result: Mapping[str, Any], curves: Mapping[CurveKey, Series]) -> list[str]:
    """Warnings for clouds with few embeddings relative to their width D."""
    titles, texts = view_titles(result), []
    for n, clouds in by_n(curves).items():
        names = dict.fromkeys(titles.get(p.view, f"site {p.where}") for p in clouds)
        if n < FEW_OF_WIDTH * result["width"]:
            texts.append(f"N = {n:,} ({', '.join(names)})")
    if not texts:
        return []
    return [
        f"Isotropy was measured on few embeddings (N < {FEW_OF_WIDTH}·D = "
        f"{FEW_OF_WIDTH * result['width']:,}): {'; '.join(texts)}. IsoScore reads low there, "
        "N/(N + D) of a Gaussian, and ranks do; the corrected IsoScore does not."
    ]
