"""What linear probes read from the layers, as pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from isotrain.analysis.layer_figures import Line, layer_figure
from isotrain.analysis.layer_probe.tables import EVALUATED, ISOTROPY
from isotrain.analysis.types import Cell, Picture, Record
from isotrain.pages.panels import COLOURS

ISOTROPIC = {"isoscore_corrected": 1, "mean_cosine": 0, "ln_partition": 0}  # what it would be
NO_SKILL = "constant answer"
Z = 1.96  # half of a 95 % interval in standard errors


def probe_pictures(records: Sequence[Record]) -> Iterator[Picture]:
    """A score over layers for each task, and against the isotropy of the layers."""
    probes = [r for r in records if r["kind"] == "probe"]
    by_task = {
        task: [r for r in probes if r["task"] == task]
        for task in dict.fromkeys(str(r["task"]) for r in probes)
    }
    for task, own in by_task.items():
        title = f"{task}: {own[0]['measure']} of a linear probe"
        figure = layer_figure(_lines(own), title)
        text = f"By layer: {title}, on the splits with gold"
        text += f", beside a {NO_SKILL} on dev." if _constant(own[0]) is not None else "."
        yield Picture(f"scores_{task}", title, figure, text)
    if by_task:
        yield Picture(
            "score_against_isotropy",
            "Score on dev against isotropy",
            _against_isotropy(by_task),
            "A row of panels a task, a point a layer, named by its number: score on dev against "
            "three measures of isotropy; bars are 95 % intervals. Layers of one encoder are no "
            "independent draws.",
        )


def _lines(own: Sequence[Record]) -> list[Line]:
    names = list(dict.fromkeys(str(r["weights"]) for r in own))
    lines = []
    own = [_with_errors(r) for r in own]
    for number, split in enumerate(s for s in EVALUATED if s in own[0]):
        for name in names:
            found = [r for r in own if r["weights"] == name]
            label = split if len(names) == 1 else f"{name} {split}"
            line = Line.of(label, found, split, f"{split} error")
            lines.append(line._replace(colour=number))
    constant = [r for r in own if r["weights"] == names[0] and r[NO_SKILL] is not None]
    if constant:
        lines.append(Line.of(NO_SKILL, constant, NO_SKILL)._replace(colour=len(COLOURS) - 1))
    return lines


def _constant(record: Record) -> Cell:
    """The score on dev of always the same answer; None without gold. No answer correlates: 0."""
    if "dev" not in record:
        return None
    return record["majority_dev"] if record["measure"] == "accuracy" else 0.0


def _with_errors(record: Record) -> Record:
    """A record with the standard errors that its intervals stand for, and a constant's score."""
    found = {**record, NO_SKILL: _constant(record)}
    for split in EVALUATED:
        low, high = record.get(f"{split}_low"), record.get(f"{split}_high")
        if isinstance(low, float) and isinstance(high, float):
            found[f"{split} error"] = (high - low) / (2 * Z)
    return found


def _against_isotropy(by_task: dict[str, list[Record]]) -> Figure:
    figure = Figure(figsize=(9.0, 0.6 + 2.3 * len(by_task)), layout="constrained")
    axes = figure.subplots(len(by_task), len(ISOTROPIC), squeeze=False)
    for row, (task, own) in zip(axes, by_task.items(), strict=True):
        for axis, column in zip(row, ISOTROPIC, strict=True):
            _draw(axis, own, column)
        row[0].set_ylabel(f"{task}, {own[0]['measure']} (dev)", fontsize=8)
    for axis, (column, ideal) in zip(axes[-1], ISOTROPIC.items(), strict=True):
        axis.set_xlabel(f"{ISOTROPY[column]} ({ideal} = isotropic)", fontsize=8)
    return figure


def _draw(axis: Axes, own: Sequence[Record], column: str) -> None:
    """A point a layer, joined in their order; each weights in a colour of its own."""
    names = list(dict.fromkeys(str(r["weights"]) for r in own))
    for name, colour in zip(names, COLOURS, strict=False):
        found = [_with_errors(r) for r in own if r["weights"] == name and r.get("dev") is not None]
        x, y = ([float(r[key]) for r in found] for key in (column, "dev"))  # type: ignore[arg-type]
        bars = [Z * float(r.get("dev error") or 0.0) for r in found]
        axis.errorbar(x, y, bars, color=colour, fmt="none", elinewidth=0.6, alpha=0.5)
        axis.plot(x, y, "o-", color=colour, markersize=4, linewidth=0.5, label=name)
        for r, at in zip(found, zip(x, y, strict=True), strict=True):
            axis.annotate(
                str(r["layer"]), at, xytext=(3, 3), textcoords="offset points", fontsize=7
            )
    axis.tick_params(labelsize=7)
    axis.margins(0.12)
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    if len(names) > 1:
        axis.legend(fontsize=6, frameon=False)
