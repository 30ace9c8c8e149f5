"""`python tools/metric_table.py` writes the table of docs/metrics.md from conf/metric."""

from pathlib import Path

from isotrain.metrics.suite import find, needs
from isotrain.results.readings import Reading, readings

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
HEAD = ("metric", "range", "isotropic", "unchanged by", "ignores", "small N", "source")
MARKS = {"groups": "ᵍ", "labels": "ˡ", "reference": "ᵇ"}  # what a metric needs beside embeddings


def table() -> str:
    """The table, a line for each metric."""
    lines = [HEAD, ("---",) * len(HEAD), *(_cells(*item) for item in readings().items())]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cells(name: str, reading: Reading) -> tuple[str, ...]:
    title = f"`{name}` {MARKS.get(needs(find(name)), '')}".strip()
    about = reading.unchanged_by, reading.ignores, reading.small_n, reading.source
    return title, reading.range, reading.end.removesuffix(" = isotropic"), *about


def with_table(text: str) -> str:
    """The page with the table in place of the one it has."""
    start = text.index("| metric |")
    return text[:start] + table() + text[text.index("\n\n", start) + 1 :]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text("utf-8")), encoding="utf-8")
