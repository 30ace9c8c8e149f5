"""Cells, notes and legend of result tables."""

import math
from collections.abc import Iterable, Sequence

from isotrain.results.findings import TEMPLATES, Finding, finding, sentences
from isotrain.results.frame import UNTRAINED, Row
from isotrain.results.levels import CHANCE, MAJORITY
from isotrain.results.names import CI, examples_text, score_name
from isotrain.results.readings import TITLES
from isotrain.results.runs import Gap, Run
from isotrain.results.statistics import FEWEST_SEEDS, LEVEL, smallest_p
from isotrain.runs.keys import parse_key
from isotrain.runs.numbers import interval, margin_text, p_text, score_number, signed
from isotrain.studies.definition import Study

BOTH = "CI over seeds and examples"
TESTS = {"t": "paired t test", "permutation": "exact sign-flip test"}
MARK = " †"  # after a method whose difference is not interpretable: collapsed predictions


def mean_text(row: Row) -> str:
    """A mean ± half of its 95 % CI; only the mean if there is no interval.

    >>> mean_text(Row("all", "wic", "val/accuracy", "none", "638", 8, 0.5938, 0.008, 0.588, 0.6))
    '59.4 ± 0.6'
    >>> mean_text(Row("all", "wic", "val/accuracy", "none", "638", 2, 0.5938, 0.008))
    '59.4 (too few seeds)'
    """
    if row.low is None or row.high is None:
        note = " (too few seeds)" if row.sd and row.n < FEWEST_SEEDS else ""
        return score_number(row.mean, row.score) + note if math.isfinite(row.mean) else ""
    values = row.mean, (row.high - row.low) / 2
    scale = max(map(abs, values))
    return " ± ".join(score_number(value, row.score, scale) for value in values)


def difference_text(row: Row) -> str:
    """A difference with its 95 % CI over seeds; empty if there is none."""
    if row.difference is None:
        return ""
    values = (row.difference, row.difference_low, row.difference_high)
    scale = max(abs(value) for value in values if value is not None)
    text = signed(row.difference, row.score, scale)
    return f"{text} {interval(*values[1:], row.score, scale)}".strip()


def share_text(row: Row) -> str:
    """A difference in percent of the gain of fine-tuning; empty if either is unknown.

    >>> row = Row("all", "wic", "test/loss", "clip", "1400", 8, 0.65, difference=-0.04, gain=-0.1)
    >>> share_text(row)
    '+40'
    """
    if row.difference is None or not row.gain:
        return ""
    differences = (row.difference, row.difference_low, row.difference_high)
    shares = [None if d is None else 100 * d / row.gain for d in differences]
    value, *bounds = (f"{share:+z.0f}".replace("-", "−") for share in shares if share is not None)
    bounds.sort(key=lambda text: float(text.replace("−", "-")))
    return f"{value} [{', '.join(bounds)}]" if bounds else value


def caption(rows: Sequence[Row]) -> str:
    """Caption of one score: name, N, and the number of evaluations it is the best of.

    >>> row = Row("all", "wic", "val/accuracy", "none", "638", 8, 0.6, best_of="7")
    >>> caption([row._replace(baseline="none")])
    'accuracy on dev, N = 638, dev: best of 7 evaluations of each run'
    """
    examples = " or ".join(dict.fromkeys(row.examples for row in rows if row.examples))
    parts = [score_name(rows[0].score), examples_text(examples)]
    if best_of := {row.method: row.best_of for row in rows if row.best_of}:
        n_methods = sum(bool(row.baseline) for row in rows)
        methods_text = f" of {', '.join(best_of)}" if len(best_of) < n_methods else ""
        counts = " or ".join(dict.fromkeys(best_of.values()))
        parts.append(f"dev: best of {counts} evaluations of each run{methods_text}")
    return ", ".join(filter(None, parts))


NO_CLAIM = "no claim"  # instead of a p if predictions are collapsed
HEAD = (
    *("method", "n", f"mean ± {CI}", f"difference [{CI}]", "% of gain", "Holm p", BOTH),
    *("TOST p", "seeds needed", "published"),
)


def score_table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The table of a score, header first; empty columns are left out."""
    columns = list(zip(HEAD, *map(cells, rows), strict=True))
    return list(zip(*(c for c in columns if any(c[1:])), strict=True))


def cells(row: Row) -> tuple[str, ...]:
    """A row as texts, in the columns of `HEAD`."""
    return (
        row.method + MARK if row.collapsed else row.method,
        str(row.n) if row.baseline else "",
        mean_text(row),
        difference_text(row),
        share_text(row),
        NO_CLAIM if row.collapsed and row.p_holm is not None else p_text(row.p_holm),
        interval(row.both_low, row.both_high, row.score),
        p_text(row.p_tost),
        f"{row.seeds_needed:,}" if row.seeds_needed else "",
        "" if row.published is None else score_number(row.published, row.score),
    )


def notes(rows: Sequence[Row], n_seeds: int) -> list[str]:
    """Notes below the table of one score, each text once, with its methods."""
    methods_by_text: dict[str, list[str]] = {}
    for row in rows:
        for text in sentences(notes_of(row, n_seeds)) if row.baseline else ():
            methods_by_text.setdefault(text, []).append(row.method)
    return [f"{', '.join(methods)}: {text}" for text, methods in methods_by_text.items()]


def notes_of(row: Row, n_seeds: int) -> list[Finding]:
    """Notes on a method's numbers, such as failed seeds, missing CIs and lost pairs."""
    findings = []
    if not row.n:
        findings.append(finding("no_runs"))
    if row.collapsed:
        no_claim = row.difference is not None
        findings.append(finding("some_collapsed", text=row.collapsed, no_claim=no_claim, mark=MARK))
    if row.failed:
        findings.append(finding("failed", n=row.failed, n_seeds=n_seeds))
    if row.pairs == 0:
        findings.append(finding("other_examples", baseline=row.baseline))
    elif row.pairs and row.pairs < row.n:
        findings.append(finding("fewer_pairs", n=row.pairs, baseline=row.baseline))
    if row.why_no_both:
        findings.append(finding("no_both", both=BOTH, why=row.why_no_both))
    if row.both_undefined:
        findings.append(finding("undefined_resamples", n=row.both_undefined))
    if row.test == "permutation" and smallest_p(row.pairs or 0) * (row.comparisons or 0) >= LEVEL:
        values = {"n": row.pairs, "m": row.comparisons, "level": p_text(LEVEL)}
        findings.append(finding("cannot_reach", **values))
    return findings


def collapsed_runs(runs: Iterable[Run]) -> list[str]:
    """Reasons for collapsed predictions, each with its runs.

    >>> one = Run("wic", "none", 0, {}, {}, "one class")
    >>> collapsed_runs([one, one._replace(seed=3), one._replace(method="clip")])
    ['wic, none, seeds 0, 3; wic, clip, seeds 0: one class']
    """
    by_reason: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        if run.degenerate:
            methods = by_reason.setdefault(run.degenerate, {})
            methods.setdefault(f"{run.task}, {run.method}", []).append(str(run.seed))
    return [
        "; ".join(f"{name}, seeds {', '.join(seeds)}" for name, seeds in methods.items())
        + f": {reason}"
        for reason, methods in by_reason.items()
    ]


def legend(study: Study, rows: Sequence[Row], gaps: Sequence[Gap] = ()) -> list[str]:
    """How to read the tables, from `legend.j2`: what each number is, and how it was computed."""
    keys = [key for row in rows if (key := parse_key(row.score))]
    margins = dict.fromkeys((row.margin, row.task, row.score) for row in rows if row.margin)
    texts = {margin_text(m, key): None for m, _, key in margins}
    long_texts = {
        f"{margin_text(m, key)} ({task}, {score_name(key)})": None for m, task, key in margins
    }
    text = TEMPLATES.get_template("legend.j2").render(
        study=study,
        tests=TESTS,
        both=BOTH,
        ci=CI,
        within=next(iter(texts))
        if len(texts) == 1 and not study.margin_share
        else "; ".join(long_texts),
        has_both=any(row.both_low is not None for row in rows),
        has_seeds_needed=any(row.seeds_needed for row in rows),
        has_untrained=any(row.method == UNTRAINED and not row.baseline for row in rows),
        has_gain=any(row.gain for row in rows),
        has_scaled_loss=any(row.score.endswith("/scaled_loss") for row in rows),
        has_layers=any(key.view in TITLES for key in keys),
        has_no_model=bool({row.method for row in rows if not row.baseline} & {MAJORITY, CHANCE}),
        has_outputs=any(key.view == "after" for key in keys),
        has_collapsed=any(row.collapsed for row in rows),
        has_best=any(row.best_of for row in rows),
        has_failed=any(gap.has_failed for gap in gaps),
        has_published=any(row.published is not None for row in rows) and study.published,
    )
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
