"""How the page of a study names a value and prints it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from isotrain.pages.readings import TITLES, label
from isotrain.pages.rows import minus, number
from isotrain.pages.study_content import Estimate
from isotrain.runs.keys import CurveKey, parse_key

STAGES = {"val": "dev", "test": "test"}
SMALLEST, LARGEST = 1e-4, 1e3  # values that are printed without an exponent


def is_score(key: str) -> bool:
    """Whether a key is a score of a task, and not isotropy.

    >>> is_score("test/accuracy"), is_score("isotropy/lid/layer_01/cls")
    (True, False)
    """
    return parse_key(key) is None


def score_name(key: str) -> str:
    """A key for a reader.

    >>> score_name("test/accuracy"), score_name("isotropy/mean_cosine/pooled/after")
    ('accuracy on test', 'mean cosine (0 = isotropic), site pooled, behind the isotropy layer')
    """
    if curve_key := parse_key(key):
        return f"{label(curve_key.metric)}, {cloud_name(curve_key)}"
    stage, _, name = key.partition("/")
    return f"{name.replace('_', ' ')} on {STAGES.get(stage, stage)}"


def cloud_name(curve_key: CurveKey) -> str:
    """Where a cloud is, for a reader.

    >>> cloud_name(CurveKey("lid", "layer_06", "tokens"))
    'layer 6, tokens'
    >>> cloud_name(CurveKey("lid", "pooled", "before"))
    'site pooled, in front of the isotropy layer'
    """
    if curve_key.view in TITLES:
        return f"layer {int(curve_key.where.removeprefix('layer_'))}, {TITLES[curve_key.view]}"
    side = "in front of" if curve_key.view == "before" else "behind"
    return f"site {curve_key.where}, {side} the isotropy layer"


def value_text(value: float | None, key: str, scale: float = 0.0) -> str:
    """A value: three decimals of a score, three digits of isotropy, a dash where there is none.

    With a `scale`, isotropy has the decimals of three digits of that.

    >>> value_text(0.61, "test/accuracy"), value_text(None, "test/accuracy")
    ('0.610', '–')
    >>> value_text(0.00634, "isotropy/lid/pooled/after", scale=0.036)
    '0.0063'
    """
    if value is None or not math.isfinite(value):
        return "–"
    if is_score(key):
        return minus(f"{value:z.3f}")
    if SMALLEST <= scale < LARGEST:
        return minus(f"{value:z.{2 - math.floor(math.log10(scale))}f}")
    return number(value)


def signed(value: float | None, key: str, scale: float = 0.0) -> str:
    """A difference, with its sign.

    >>> signed(0.0101, "val/accuracy"), signed(-0.5, "val/accuracy"), signed(0.0, "val/accuracy")
    ('+0.010', '−0.500', '0.000')
    """
    text = value_text(value, key, scale)
    return f"+{text}" if any(c in "123456789" for c in text) and text[0] not in "−–" else text


def interval(estimate: Estimate, key: str, sign: bool = False) -> str:
    """The ends of an interval; nothing where it is not defined.

    >>> interval(Estimate(3, 0.0, 0.1, -0.02, 0.0204), "val/accuracy", sign=True)
    '[−0.020, +0.020]'
    """
    if estimate.low is None or estimate.high is None:
        return ""
    text, scale = signed if sign else value_text, _scale(estimate)
    return f"[{text(estimate.low, key, scale)}, {text(estimate.high, key, scale)}]"


def difference_text(estimate: Estimate, key: str) -> str:
    """A difference with its interval.

    >>> difference_text(Estimate(3, 0.5, 0.1, -0.02, 1.02), "isotropy/lid/pooled/after")
    '+0.50 [−0.02, +1.02]'
    """
    text = signed(estimate.mean, key, _scale(estimate))
    return f"{text} {interval(estimate, key, sign=True)}".strip()


def _scale(estimate: Estimate) -> float:
    ends = (estimate.mean, estimate.low, estimate.high)
    return max((abs(end) for end in ends if end is not None and math.isfinite(end)), default=0.0)


def rows_text(n_rows: str) -> str:
    """Numbers of rows as they are printed.

    >>> rows_text("638 or 1400"), rows_text("")
    ('N = 638 or 1,400', '')
    """
    return "N = " + re.sub(r"\d+", lambda found: f"{int(found[0]):,}", n_rows) if n_rows else ""


def best_of_text(best_of: Mapping[str, str]) -> str:
    """Of how many evaluations dev took the best, by arm; empty where no score was selected.

    >>> best_of_text({"none": "7", "mean": "7"}), best_of_text({"none": "", "mean": "7"})
    ('dev: best of 7 evaluations of each run', 'dev: best of 7 evaluations of each run of mean')
    """
    chosen = {arm: n for arm, n in best_of.items() if n}
    if not chosen:
        return ""
    whose = f" of {', '.join(chosen)}" if len(chosen) < len(best_of) else ""
    counts = " or ".join(dict.fromkeys(chosen.values()))
    return f"dev: best of {counts} evaluations of each run{whose}"


def by_arm(notes: Mapping[str, Iterable[str]]) -> list[str]:
    """Each text once, behind the arms that have it.

    >>> by_arm({"mean": ["no predictions"], "zca": ["3 failed", "no predictions"]})
    ['mean, zca: no predictions', 'zca: 3 failed']
    """
    found: dict[str, list[str]] = {}
    for arm, texts in notes.items():
        for text in texts:
            found.setdefault(text, []).append(arm)
    return [f"{', '.join(arms)}: {text}" for text, arms in found.items()]


def p_text(p: float | None) -> str:
    """A p-value in three decimals.

    >>> p_text(0.0301), p_text(0.0002), p_text(None)
    ('0.030', '< 0.001', '')
    """
    return "" if p is None or math.isnan(p) else "< 0.001" if p < 0.001 else f"{p:.3f}"
