"""Cautions about a run's numbers, as codes and values; `sentences` renders them as text."""

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
    """The name of a macro in `findings.j2`, and its arguments."""

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
    return {
        sentences([mixture])[0].partition(": ")[0]: mixture.values["lines"] for mixture in mixtures
    }


def faults(
    result: Mapping[str, Any], rows: Rows = (), has_checkpoint: bool = False
) -> list[Finding]:
    """Faults of a run: it has not finished, or it collapsed.

    `has_checkpoint`: the same command resumes from a checkpoint.
    """
    findings = []
    if (status := result.get("status", "unknown")) != "finished":
        values = {"status": status, "error": result.get("error"), "has_checkpoint": has_checkpoint}
        last = rows[-1]["step"] if rows else None
        findings.append(finding("not_finished", last_step=last, **values))
    if result.get("degenerate"):
        findings.append(finding("degenerate", reason=result.get("degenerate_reason")))
    return findings


def warnings(result: Mapping[str, Any], rows: Rows) -> list[Finding]:
    """Limitations that a reader of the numbers must know, in addition to `faults`."""
    curves = isotropy_series(rows)
    findings = []
    clouds = [c for c in curves if c.metric == "n_rows_not_finite" and any(v for _, v in curves[c])]
    if clouds:
        findings.append(
            finding("not_finite", clouds=sorted({f"{c.where}/{c.view}" for c in clouds}))
        )
    keys = sorted({k for row in rows for k, v in row.items() if isinstance(v, float) and v != v})
    if keys:
        n_more = max(0, len(keys) - MOST_NAMED)
        findings.append(finding("not_a_number", keys=keys[:MOST_NAMED], more=n_more))
    findings += selection(result)
    if part := limited_text(result):
        findings.append(finding("limited", part=part))
    if lost_input := lost_text(result.get("lost_input", {})):
        findings.append(finding("lost_input", text=lost_input))
    findings += unlike(result, rows)
    if 0 < (n := n_evaluated(result, rows, "val")) < FEW_ROWS:
        findings.append(finding("few_examples", n=n))
    findings += _few_rows(result, curves)
    return findings if curves else [*findings, finding("no_isotropy")]


def unlike(result: Mapping[str, Any], rows: Rows) -> list[Finding]:
    """The isotropy layer that is frozen on a queue unlike the embeddings of the last evaluation.

    That is a gap above `FAR`, or a spread above `FAR` or below its inverse. It is the first layer:
    those behind it are fitted on embeddings of the current weights, as `refit` ones are.
    """
    config = result.get("config") or {}
    layer = config.get("isotropy") or {}
    if layer.get("eval_stats", "frozen") != "frozen" or layer.get("stats") == "start":
        return []  # its map does not come from the queue
    n = (config.get("data") or {}).get("batch_size", FEW_OF_BATCH)
    small = n if n < FEW_OF_BATCH else None
    end = end_of(result, rows).step
    findings = []
    sites = {key.split("/")[1] for row in rows for key in row if key.endswith(GAP)}
    for site in sorted(sites, key=_forward)[:1]:
        gap, spread = (at(series(rows, f"val/{site}{name}"), end) for name in (GAP, SPREAD))
        if gap > FAR or spread > FAR or spread < 1 / FAR:  # false for NaN
            findings.append(finding("unlike", site=site, gap=gap, spread=spread, small_batch=small))
    return findings


def _forward(site: str) -> tuple[bool, bool, int, str]:
    """A key that sorts sites in the order of the forward pass: layers, tokens, pooled."""
    return site == "pooled", site == "tokens", len(site), site


def selection(result: Mapping[str, Any]) -> list[Finding]:
    """How the weights of a run were selected, if by evaluations; early stopping."""
    findings = []
    select = result.get("config", {}).get("training", {}).get("select", "last")
    values = {"step": result.get("selected_step"), "n": result.get("n_candidates")}
    if result.get("select") == "best":
        findings.append(finding("best_on_dev", **values))
    elif result.get("select") == "holdout":
        findings.append(finding("best_on_holdout", n_holdout=result["n_rows"]["holdout"], **values))
    elif select != "last":
        findings.append(finding("nothing_to_select", select=select))
    if result.get("stopped_early"):
        findings.append(finding("stopped_early", step=result.get("steps")))
    return findings


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
            small[n] = list(dict.fromkeys(titles.get(c.view, f"site {c.where}") for c in clouds))
    limits = {"share": FEW_OF_WIDTH, "least": FEW_OF_WIDTH * result.get("width", 0)}
    return [finding("few_embeddings", small=small, **limits)] if small else []
