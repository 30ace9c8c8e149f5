"""Number formats of all tables, pages and model cards."""

import math

STAGES = ("val", "test")  # of the keys of scores
SHARES = {"accuracy", "balanced_accuracy", "precision", "recall", "f1", "f1_macro", "auroc"}
SHARES |= {
    "spearman",
    "spearman_within",
    "pearson",
    "kendall",
    "matthews",
}  # scores that are printed in points
SMALLEST, LARGEST = 1e-4, 1e3  # values that are printed without an exponent
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float | None, digits: int = 3) -> str:
    """A value with some digits; whole numbers as they are, a dash for none.

    >>> [number(v) for v in (-12.345, 123.4, 999.6, 1e-4 + 1e-9, 8.77e-5, 24.0, float("nan"))]
    ['−12.3', '123', '1,000', '0.000100', '8.77·10⁻⁵', '24', '–']
    >>> number(0.123456, digits=4), number(1234.5, digits=4)
    ('0.1235', '1,234')
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value == int(value):
        return minus(f"{value:z,.0f}")
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    power = int(exponent)
    if 10.0**power < SMALLEST:
        return minus(mantissa) + f"·10{superscript(power)}"
    return minus(f"{value:,.{max(0, digits - 1 - power)}f}")


def score_number(value: float | None, key: str, scale: float = 0.0) -> str:
    """A value of a score: shares in points with one decimal, all else with three digits.

    With a `scale`, what is no share has the decimals of three digits of that.

    >>> score_number(0.6125, "test/accuracy"), score_number(-0.04312, "val/loss")
    ('61.3', '−0.0431')
    >>> score_number(0.00634, "isotropy/lid/pooled/after", scale=0.036)
    '0.0063'
    """
    if value is None or not math.isfinite(value):
        return "–"
    if is_share(key):
        return minus(f"{100 * value:z,.1f}")
    if SMALLEST <= scale < LARGEST:
        return minus(f"{value:z.{2 - math.floor(math.log10(scale))}f}")
    return number(value)


def is_share(key: str) -> bool:
    """Whether a score is a share or a correlation, which is printed in points (x 100).

    >>> is_share("test/accuracy"), is_share("val/loss")
    (True, False)
    """
    stage, _, name = key.partition("/")
    return stage in STAGES and name in SHARES


def signed(value: float | None, key: str, scale: float = 0.0) -> str:
    """A difference, with its sign.

    >>> signed(0.0101, "val/accuracy"), signed(-0.5, "val/accuracy"), signed(0.0, "val/accuracy")
    ('+1.0', '−50.0', '0.0')
    """
    text = score_number(value, key, scale)
    return f"+{text}" if any(c in "123456789" for c in text) and text[0] not in "−–" else text


def interval(low: float | None, high: float | None, key: str, scale: float = 0.0) -> str:
    """The ends of the interval of a difference; nothing where it is not defined.

    >>> interval(-0.02, 0.0204, "val/accuracy")
    '[−2.0, +2.0]'
    """
    if low is None or high is None:
        return ""
    return f"[{signed(low, key, scale)}, {signed(high, key, scale)}]"


def p_text(p: float | None) -> str:
    """A p value with three decimals.

    >>> p_text(0.0301), p_text(0.0002), p_text(1.0), p_text(None)
    ('.030', '< .001', '1.000', '')
    """
    if p is None or math.isnan(p):
        return ""
    return "< .001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def p_equals(p: float | None) -> str:
    """A p value in a sentence.

    >>> p_equals(0.0301), p_equals(0.0002)
    ('= .030', '< .001')
    """
    text = p_text(p)
    return text if text.startswith("<") else f"= {text}"


def margin_text(margin: float | None, key: str) -> str:
    """A margin of equivalence with its unit.

    >>> margin_text(0.02, "test/accuracy"), margin_text(0.02, "test/loss")
    ('±2.0 points', '±0.0200')
    """
    return f"±{score_number(margin, key)}{' points' if is_share(key) else ''}"


def size_range(sizes: set[int]) -> str:
    """The smallest and the largest of some numbers of embeddings; empty for none.

    >>> size_range({1277, 9}), size_range({638}), size_range(set())
    ('N = 9 to 1,277', 'N = 638', '')
    """
    bounds = sorted({min(sizes), max(sizes)}) if sizes else []
    return "N = " + " to ".join(f"{n:,}" for n in bounds) if bounds else ""


def superscript(number: int) -> str:
    """A whole number as an exponent.

    >>> superscript(-12)
    '⁻¹²'
    """
    return str(number).translate(SUPERSCRIPTS)


def minus(text: str) -> str:
    """A number as text, with the sign of print.

    >>> minus("-0.5")
    '−0.5'
    """
    return text.replace("-", "−")
