"""The tables of a model card: scores with intervals, isotropy around the layer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from isotrain.export.source_run import SourceRun
from isotrain.pages.readings import SIDE_TITLES
from isotrain.reporting.markdown import aligned
from isotrain.reporting.numbers import is_share, number, score_number
from isotrain.reporting.row_bootstrap import SCORES, row_interval
from isotrain.runs.files import read_records
from isotrain.runs.keys import SIDES, parse_key
from isotrain.runs.predictions import read_predictions

SPLITS = {"val": "dev", "test": "test"}  # as keys name them, and as files do


class Scored(NamedTuple):
    """One score of a run."""

    split: str  # dev | test
    name: str
    value: float
    interval: tuple[float, float] | None  # 95 % CI over examples, where it can be computed
    n_examples: int


class Figures(NamedTuple):
    """What the card tells of the run's log."""

    scored: list[Scored]
    score_table: str
    isotropy_table: str


def figures_of(run: SourceRun, names: Collection[str], label: Callable[[str], str]) -> Figures:
    """The scores of some names, and isotropy; `label` says how a metric is read."""
    found = scored(run, names)
    return Figures(found, score_table(found), isotropy_table(run, label))


def scored(run: SourceRun, names: Collection[str]) -> list[Scored]:
    """The scores of some names on dev and test, the monitored one first in each."""
    monitored = str(run.result["monitor"]).rpartition("/")[2]
    found = []
    for key, value in run.result["scores"].items():
        stage, _, name = key.partition("/")
        if stage in SPLITS and name in names:
            split = SPLITS[stage]
            n_examples = int(run.result["n_rows"].get(split, 0))
            interval = _interval(run, split, name)
            found.append(Scored(split, name, float(value), interval, n_examples))
    return sorted(found, key=lambda one: (one.split, one.name != monitored, one.name))


def _interval(run: SourceRun, split: str, name: str) -> tuple[float, float] | None:
    """Of the difference to perfect predictions, whose score is 1 in any resample of examples."""
    kept = read_predictions(run.folder, split)
    if kept is None or name not in SCORES:
        return None
    try:
        found = row_interval([kept.prediction], [kept.label], kept.label, SCORES[name])
    except ValueError:  # the score is not defined in too many resamples
        return None
    if found.low is None or found.high is None:
        return None
    return 1 + found.low, min(1.0, 1 + found.high)


def score_table(found: Sequence[Scored]) -> str:
    """The scores as a markdown table."""
    lines = [("split", "score", "value", "95 % CI", "N")]
    for one in found:
        key = f"test/{one.name}"
        ends = " to ".join(score_number(end, key) for end in one.interval or ())
        value = score_number(one.value, key) + " points" * is_share(key)
        lines.append((one.split, one.name, value, ends or "–", f"{one.n_examples:,}"))
    return "\n".join(aligned(lines))


def isotropy_table(run: SourceRun, label: Callable[[str], str]) -> str:
    """The headline metrics at every layer, at the first and last evaluation, in markdown."""
    wanted: Sequence[str] = run.result.get("headline") or ()
    first: dict[tuple[str, str, str], float] = {}
    last: dict[tuple[str, str, str], float] = {}
    steps = []
    for record in read_records(run.folder / "metrics.jsonl"):
        values = dict(_around_layers(record))
        if values:
            steps.append(int(record["step"]))
            first, last = values | first, last | values
    shown = sorted(
        (key for key in last if key[0] in wanted),
        key=lambda key: (key[1], wanted.index(key[0]), key[2] != "before"),
    )
    if not shown:
        return "The run measured none."
    lines = [("site", "metric", "of the layer", f"step {steps[0]}", f"step {steps[-1]}", "N")]
    for key in shown:
        metric, site, side = key
        ends = number(first[key]), number(last[key])
        n_rows = number(last.get(("n_rows", site, side)))
        lines.append((site, label(metric), SIDE_TITLES[side], *ends, n_rows))
    return "\n".join(aligned(lines))


def _around_layers(record: dict[str, float]) -> Iterator[tuple[tuple[str, str, str], float]]:
    """What a record says of the input and output of isotropy layers."""
    for key, value in record.items():
        curve = parse_key(key)
        if curve is not None and key.startswith("isotropy/") and curve.view in SIDES:
            yield (curve.metric, curve.where, curve.view), value
