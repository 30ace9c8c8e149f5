"""Names and formats of results: one number format, one name per test, one legend."""

import math
import re
from collections.abc import Iterable, Sequence

from isotrain.results.frame import UNTRAINED, Row
from isotrain.results.levels import CHANCE, MAJORITY
from isotrain.results.numbers import interval, margin_text, p_text, score_number, signed
from isotrain.results.readings import SIDE_TITLES, TITLES, label
from isotrain.results.runs import LESS_NULL, SPLITS, Gap, Run
from isotrain.results.statistics import FEWEST_SEEDS, LEVEL, smallest_p
from isotrain.runs.keys import CurveKey, parse_key
from isotrain.studies.definition import Study

CI = "95 % CI"
BOTH = "CI over seeds and examples"
TESTS = {"t": "paired t test", "permutation": "exact sign-flip test"}
LESS_NULL_NAME = "ln I(W) less its null (0 = isotropic)"
MARK = " †"  # after a method whose difference is not interpretable: collapsed predictions


def mean_text(row: Row) -> str:
    """A mean ± half of its 95 % CI; only the mean if there is no interval.

    >>> mean_text(Row("all", "wic", "val/accuracy", "none", "638", 8, 0.5938, 0.008, 0.588, 0.6))
    '59.4 ± 0.6'
    >>> mean_text(Row("all", "wic", "val/accuracy", "none", "638", 2, 0.5938, 0.008))
    '59.4 (too few seeds)'
    """
    if row.low is None or row.high is None:
        few = " (too few seeds)" if row.sd and row.n < FEWEST_SEEDS else ""
        return score_number(row.mean, row.score) + few if math.isfinite(row.mean) else ""
    ends = row.mean, (row.high - row.low) / 2
    scale = max(map(abs, ends))
    return " ± ".join(score_number(end, row.score, scale) for end in ends)


def difference_text(row: Row) -> str:
    """A difference with its 95 % CI over seeds; empty if there is none."""
    if row.difference is None:
        return ""
    ends = (row.difference, row.difference_low, row.difference_high)
    scale = max(abs(end) for end in ends if end is not None)
    text = signed(row.difference, row.score, scale)
    return f"{text} {interval(*ends[1:], row.score, scale)}".strip()


def share_text(row: Row) -> str:
    """A difference in percent of the gain of fine-tuning; empty if either is unknown.

    >>> row = Row("all", "wic", "test/loss", "clip", "1400", 8, 0.65, difference=-0.04, gain=-0.1)
    >>> share_text(row)
    '+40'
    """
    if row.difference is None or not row.gain:
        return ""
    ends = (row.difference, row.difference_low, row.difference_high)
    shares = [None if end is None else 100 * end / row.gain for end in ends]
    value, *others = (f"{share:+.0f}".replace("-", "−") for share in shares if share is not None)
    others.sort(key=lambda text: float(text.replace("−", "-")))
    return f"{value} [{', '.join(others)}]" if others else value


def score_name(key: str) -> str:
    """Readable name of a score key.

    >>> score_name("test/accuracy"), score_name("isotropy/mean_cosine/pooled/after")
    ('accuracy on test', 'mean cosine (0 = isotropic), site pooled, output')
    """
    if curve_key := parse_key(key):
        name = LESS_NULL_NAME if curve_key.metric == LESS_NULL else label(curve_key.metric)
        return f"{name}, {cloud_name(curve_key)}"
    stage, _, name = key.partition("/")
    return f"{name.replace('_', ' ')} on {SPLITS.get(stage, stage)}"


def cloud_name(curve_key: CurveKey) -> str:
    """Readable name of a cloud."""
    if curve_key.view in TITLES:
        return f"layer {int(curve_key.where.removeprefix('layer_'))}, {TITLES[curve_key.view]}"
    return f"site {curve_key.where}, {SIDE_TITLES[curve_key.view]}"


def examples_text(examples: str) -> str:
    """Numbers of examples as printed."""
    return "N = " + re.sub(r"\d+", lambda n: f"{int(n[0]):,}", examples) if examples else ""


def caption(rows: Sequence[Row]) -> str:
    """Caption of one score: name, N, and the number of evaluations it is the best of.

    >>> row = Row("all", "wic", "val/accuracy", "none", "638", 8, 0.6, best_of="7")
    >>> caption([row._replace(baseline="none")])
    'accuracy on dev, N = 638, dev: best of 7 evaluations of each run'
    """
    examples = " or ".join(dict.fromkeys(row.examples for row in rows if row.examples))
    parts = [score_name(rows[0].score), examples_text(examples)]
    if chosen := {row.method: row.best_of for row in rows if row.best_of}:
        n_methods = sum(bool(row.baseline) for row in rows)
        whose = f" of {', '.join(chosen)}" if len(chosen) < n_methods else ""
        counts = " or ".join(dict.fromkeys(chosen.values()))
        parts.append(f"dev: best of {counts} evaluations of each run{whose}")
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
    found: dict[str, list[str]] = {}
    for row in rows:
        for text in notes_of(row, n_seeds) if row.baseline else ():
            found.setdefault(text, []).append(row.method)
    return [f"{', '.join(methods)}: {text}" for text, methods in found.items()]


def notes_of(row: Row, n_seeds: int) -> list[str]:
    """Notes on a method's numbers: failed seeds, reasons for missing CIs, what is lost."""
    found = []
    if not row.n:
        found.append("every run has collapsed predictions and is left out here")
    if row.collapsed:
        claim = "" if row.difference is None else ": no claim"
        found.append(f"{row.collapsed}{claim} ({MARK.strip()})")
    if row.failed:
        found.append(failed_text(row, n_seeds))
    if row.pairs and row.pairs < row.n:
        found.append(
            f"the difference is of {row.pairs} seeds, those that {row.baseline} has too, on "
            "as many examples"
        )
    if row.why_no_both:
        found.append(f"no {BOTH}: {row.why_no_both}")
    if row.both_undefined:
        found.append(f"{row.both_undefined} resamples without a defined score are left out")
    if row.test == "permutation" and smallest_p(row.pairs or 0) * (row.comparisons or 0) >= LEVEL:
        found.append(
            f"{row.pairs} pairs among {row.comparisons} comparisons cannot reach Holm p < "
            f"{p_text(LEVEL)} by sign flips, whatever the difference"
        )
    return found


def failed_text(row: Row, n_seeds: int) -> str:
    """Number of seeds missing because training failed; empty for none."""
    if not row.failed:
        return ""
    return f"{row.failed} of {n_seeds} seeds failed; these numbers are of the others"


def collapsed_runs(runs: Iterable[Run]) -> list[str]:
    """Reasons for collapsed predictions, each with its runs.

    >>> one = Run("wic", "none", 0, {}, {}, "one class")
    >>> collapsed_runs([one, one._replace(seed=3), one._replace(method="clip")])
    ['wic, none, seeds 0, 3; wic, clip, seeds 0: one class']
    """
    found: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        if run.degenerate:
            methods = found.setdefault(run.degenerate, {})
            methods.setdefault(f"{run.task}, {run.method}", []).append(str(run.seed))
    return [
        "; ".join(f"{of}, seeds {', '.join(seeds)}" for of, seeds in methods.items()) + f": {why}"
        for why, methods in found.items()
    ]


def legend(study: Study, rows: Sequence[Row], gaps: Sequence[Gap] = ()) -> list[str]:
    """How to read the tables, in sentences: what each number is, and how it was computed."""
    texts = [
        "Accuracies and correlations are in points (x 100). n: seeds; N: examples that a score is "
        "computed on. ± and [ ]: 95 % CI over seeds by Student's t, of the number beside it; it "
        "holds the spread between trainings, not that of the N examples. One seed, or seeds that "
        "all agree, give no CI and no p.",
        f"Difference: a method less {study.baseline}, paired over the seeds that both have. Holm "
        f"p: two-sided, by the {TESTS['permutation']} for 8 to 40 pairs and the {TESTS['t']} "
        "otherwise, Holm-corrected for the methods of one task and one score, those that were left "
        "out after they were run among them; not for several tasks or scores. CIs are not "
        "corrected.",
    ]
    if any(row.both_low is not None for row in rows):
        texts.append(
            f"{BOTH}: {CI} of the difference for other seeds and other examples (bootstrap of the "
            "examples, closed form over seeds)."
        )
    if margins := dict.fromkeys((row.task, row.margin, row.score) for row in rows if row.margin):
        of = {
            f"{margin_text(m, key)} ({task}, {score_name(key)})": None for task, m, key in margins
        }
        same = study.margin_share is None and len({margin_text(*m[1:]) for m in margins}) == 1
        within = margin_text(*next(iter(margins))[1:]) if same else "; ".join(of)
        if study.margin_share is not None:
            within = (
                f"{study.margin_share:.0%} of {study.baseline} − untrained (the end of its CI "
                f"nearer to 0): {within}"
            )
        texts.append(
            f"TOST p: of a difference beyond the margin, {within}, by two one-sided t tests; a "
            "small one says that the difference is smaller than that. It is not corrected, and "
            "not given beside collapsed predictions."
        )
    elif study.margin is None and study.margin_share is None:
        texts.append("No margin was stated, so that nothing is called the same.")
    else:
        texts.append(
            "A margin was stated; no difference could be tested against it"
            + (
                "."
                if study.margin_share is None
                else ", or no gain was shown that it is a share of."
            )
        )
    if any(row.seeds_needed for row in rows):
        texts.append(
            "Seeds needed: about the fewest that show a difference of one point with power 80 % "
            "under Holm's first step, at the spread seen here. Five seeds leave that spread "
            "uncertain by a factor of 0.6 to 2.9, and the number goes as its square."
        )
    if any(row.method == UNTRAINED and not row.baseline for row in rows):
        texts.append(
            f"Untrained: the runs of {study.baseline} before fine-tuning, at step 0; with a "
            "method, its own runs, where its layer is fitted or its head solved by then."
        )
    if any(row.gain for row in rows):
        texts.append(
            f"% of gain: the difference over what fine-tuning adds to {study.baseline} (its mean "
            "less untrained, paired by seed), in percent with its 95 % CI; the spread of the gain "
            "itself is left out. Not given where the CI of the gain holds 0, or the score gets "
            "worse."
        )
    if any(row.score.endswith("/scaled_loss") for row in rows):
        texts.append(
            "Scaled loss: log loss of logits divided by the temperature that is best on dev; it is "
            "free of over- and underconfidence."
        )
    if any((key := parse_key(row.score)) and key.view in TITLES for row in rows):
        texts.append(
            "Isotropy of a layer: the encoder's own embeddings on dev before any isotropy layer, "
            "in the view that is pooled (CLS, mean, else all tokens); N: embeddings, of another "
            "sample than those of a site."
        )
    if {row.method for row in rows if not row.baseline} & {MAJORITY, CHANCE}:
        texts.append("Majority class and chance: what needs no model.")
    if any((key := parse_key(row.score)) and key.view == "after" for row in rows):
        texts.append(
            "Output at a site: of the isotropy layer; of a method without one what the head reads."
        )
    if any(row.collapsed for row in rows):
        texts.append(
            "†: predictions of runs behind the number are collapsed: nothing is claimed, and no "
            "Holm p is given (table.csv has it)."
        )
    texts.append(
        "Every finished run counts. The weights of a run were selected on dev: their monitored "
        "score is the best of its evaluations, higher than that of the same weights on other "
        "examples; one of test is of the selected weights, and selected nothing."
        if any(row.best_of for row in rows)
        else "Every finished run counts; nothing is the best of several."
    )
    if any(gap.has_failed for gap in gaps):
        texts.append("Failed runs have no score and do not count: that may flatter their method.")
    if any(row.published is not None for row in rows) and study.published:
        texts.append(f"Published: {study.published.source.rstrip('.')}.")
    return texts
