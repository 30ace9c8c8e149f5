"""What a reader of a run's numbers must know, as codes and numbers; `sentences` says it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from isotrain.results.readings import view_titles
from isotrain.results.runs import limited_text
from isotrain.results.series import Rows, Series, at, by_n, end_of, isotropy_series, series
from isotrain.runs.keys import CurveKey
from isotrain.runs.lost_input import lost_text
from isotrain.runs.numbers import number, score_number

FEW_ROWS = 1000  # dev examples below which a warning is shown
FAR = 2.0  # between the embeddings of a queue and of dev; a warning is shown above it
FEW_OF_BATCH = 8  # batch size below which a queue reaches far back
GAP, SPREAD = "/queue_gap", "/queue_spread"
FEW_OF_WIDTH = 10  # N over D below which isotropy is biased
MOST_NAMED = 5  # keys in one sentence
TEMPLATES = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined)
TEMPLATES.filters |= {"number": number, "score_number": score_number}


class Finding(NamedTuple):
    """Something to say: the name of a macro in `findings.j2`, and what it is filled with."""

    code: str
    values: Mapping[str, Any]


def finding(code: str, **values: Any) -> Finding:
    """A finding."""
    return Finding(code, values)


def sentences(findings: Iterable[Finding]) -> list[str]:
    """Each finding as text.

    >>> sentences([finding("stopped_early", step=40)])
    ['Training was stopped early, after step 40.']
    """
    module = TEMPLATES.get_template("findings.j2").module
    return [" ".join(str(getattr(module, code)(**values)).split()) for code, values in findings]


def titled(mixtures: Iterable[Finding]) -> dict[str, Sequence[str]]:
    """The lines of each finding by its title."""
    return {sentences([one])[0].partition(": ")[0]: one.values["lines"] for one in mixtures}


def faults(
    result: Mapping[str, Any], rows: Rows = (), has_checkpoint: bool = False
) -> list[Finding]:
    """Faults of a run: it has not finished, or it collapsed.

    `has_checkpoint`: the same command resumes from a checkpoint.
    """
    found = []
    if (status := result.get("status", "unknown")) != "finished":
        values = {"status": status, "error": result.get("error"), "has_checkpoint": has_checkpoint}
        last = rows[-1]["step"] if rows else None
        found.append(finding("not_finished", last_step=last, **values))
    if result.get("degenerate"):
        found.append(finding("degenerate", reason=result.get("degenerate_reason")))
    return found


def warnings(result: Mapping[str, Any], rows: Rows) -> list[Finding]:
    """Limitations that a reader of the numbers must know, in addition to `faults`."""
    curves = isotropy_series(rows)
    found = []
    lost = [p for p in curves if p.metric == "n_rows_not_finite" and any(v for _, v in curves[p])]
    if lost:
        found.append(finding("not_finite", clouds=sorted({f"{p.where}/{p.view}" for p in lost})))
    broken = sorted({k for row in rows for k, v in row.items() if isinstance(v, float) and v != v})
    if broken:
        more = max(0, len(broken) - MOST_NAMED)
        found.append(finding("not_a_number", keys=broken[:MOST_NAMED], more=more))
    found += selection(result)
    if part := limited_text(result):
        found.append(finding("limited", part=part))
    if lost_input := lost_text(result.get("lost_input", {})):
        found.append(finding("lost_input", what=lost_input))
    found += unlike(result, rows)
    if 0 < (n := n_evaluated(result, rows, "val")) < FEW_ROWS:
        found.append(finding("few_examples", n=n))
    found += _few_rows(result, curves)
    return found if curves else [*found, finding("no_isotropy")]


def unlike(result: Mapping[str, Any], rows: Rows) -> list[Finding]:
    """Isotropy layers whose queue is unlike the embeddings of the last evaluation.

    That is a gap above `FAR`, or a spread above `FAR` or below its inverse.
    """
    config = result.get("config") or {}
    layer = config.get("isotropy") or {}
    if layer.get("stats") == "start" and layer.get("eval_stats") == "refit":
        return []  # its map does not come from the queue
    n = (config.get("data") or {}).get("batch_size", FEW_OF_BATCH)
    small = n if n < FEW_OF_BATCH else None
    end = end_of(result, rows).step
    found = []
    for site in sorted({key.split("/")[1] for row in rows for key in row if key.endswith(GAP)}):
        gap, spread = (at(series(rows, f"val/{site}{name}"), end) for name in (GAP, SPREAD))
        if gap > FAR or spread > FAR or spread < 1 / FAR:  # false for NaN
            found.append(finding("unlike", site=site, gap=gap, spread=spread, small_batch=small))
    return found


def selection(result: Mapping[str, Any]) -> list[Finding]:
    """How the weights of a run were selected, if by evaluations; early stopping."""
    found = []
    asked = result.get("config", {}).get("training", {}).get("select", "last")
    best = {"step": result.get("selected_step"), "n": result.get("n_candidates")}
    if result.get("select") == "best":
        found.append(finding("best_on_dev", **best))
    elif result.get("select") == "holdout":
        found.append(finding("best_on_holdout", n_holdout=result["n_rows"]["holdout"], **best))
    elif asked != "last":
        found.append(finding("nothing_to_select", asked=asked))
    if result.get("stopped_early"):
        found.append(finding("stopped_early", step=result.get("steps")))
    return found


def n_evaluated(result: Mapping[str, Any], rows: Rows, stage: str) -> int:
    """Examples behind a score: the logged number of evaluated ones, else the size of the split."""
    values = series(rows, f"{stage}/n_rows")
    split = "dev" if stage == "val" else stage
    return int(values[-1][1] if values else (result.get("n_rows") or {}).get(split, 0))


def _few_rows(result: Mapping[str, Any], curves: Mapping[CurveKey, Series]) -> list[Finding]:
    """Clouds with few embeddings relative to their width D."""
    titles, small = view_titles(result), {}
    for n, clouds in by_n(curves).items():
        if n < FEW_OF_WIDTH * result["width"]:
            small[n] = list(dict.fromkeys(titles.get(p.view, f"site {p.where}") for p in clouds))
    share = {"share": FEW_OF_WIDTH, "least": FEW_OF_WIDTH * result.get("width", 0)}
    return [finding("few_embeddings", small=small, **share)] if small else []
