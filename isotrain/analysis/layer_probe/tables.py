"""What linear probes read from the layers, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from isotrain.analysis.types import Cell, Record, Table
from isotrain.analysis.weights import AFTER

ISOTROPY = {
    "isoscore_corrected": "IsoScore",
    "mean_cosine": "mean cosine",
    "ln_partition": "ln I(W)",
    "ln_partition_null": "its null",
}
EVALUATED = ("dev", "test")
RUN_SAW = (
    "after: where the run was trained on this very task, its encoder has seen all these training "
    "rows, the held-out part among them, so that penalty and layer are chosen on a score that is "
    "too good; dev may have chosen the run's checkpoint."
)


def probe_tables(records: Sequence[Record], features: str) -> Iterator[Table]:
    """The tasks at the layer that train chooses, and all layers of each task."""
    probes = [r for r in records if r["kind"] == "probe"]
    names = list(dict.fromkeys(str(r["weights"]) for r in probes))
    lead = ["weights"] if len(names) > 1 else []
    absent = [f"{r['task']}: {r['reason']}" for r in records if r["kind"] == "task left out"]
    yield _tasks(probes, lead, features, list(dict.fromkeys(absent)))
    for task in dict.fromkeys(str(r["task"]) for r in probes):
        own = [r for r in probes if r["task"] == task]
        if lead:
            yield from _several_weights(task, own, names)
        else:
            yield _one_weights(task, own)


def _tasks(
    probes: Sequence[Record], lead: list[str], features: str, absent: Sequence[str]
) -> Table:
    lines: list[list[Cell]] = []
    for r in probes:
        if not r["is_chosen"]:
            continue
        last = _last(probes, r)
        line = [*(r[key] for key in lead), r["task"], r["measure"], r["n_train"], r["layer"]]
        for split in EVALUATED:
            line += [r.get(split), _interval(r, split), last.get(split)]
        lines.append([*line, r["chance"], r.get("majority_dev")])
    columns = ["task", "measure", "N train", "layer"]
    columns += [c for s in EVALUATED for c in (s, f"{s} 95 %", f"{s} last")]
    notes = [
        f"Features: {features}. They are standardised, and penalty and layer chosen (least loss on "
        "a held-out part), on train alone; last: the last layer. chance: of C classes 1/C, of a "
        "correlation 0; majority: on dev, of the class that train has most of.",
        "Intervals: Wilson for accuracy, Bonett and Wright (2000) for Spearman.",
    ]
    if any(r["weights"] == AFTER for r in probes):
        notes.append(RUN_SAW)
    if absent:
        notes.append(f"left out: {'; '.join(absent)}")
    columns = [*lead, *columns, "chance", "majority"]
    return Table("tasks", "What a linear map reads from a frozen layer", columns, lines, notes)


def _one_weights(task: str, own: Sequence[Record]) -> Table:
    lines: list[list[Cell]] = []
    for r in own:
        line: list[Cell] = [_layer(r)]
        for split in EVALUATED:
            line += [r.get(split), _interval(r, split)]
        lines.append([*line, r["penalty"], *(r[key] for key in ISOTROPY)])
    columns = ["layer", *(c for s in EVALUATED for c in (s, f"{s} 95 %")), "penalty"]
    return Table(
        f"layers_{task}",
        f"{task}: {own[0]['measure']} by layer, and isotropy there",
        [*columns, *ISOTROPY.values()],
        lines,
        [_counts(own[0]), _cloud(own[0]), "→ the layer that train chooses."],
    )


def _several_weights(task: str, own: Sequence[Record], names: Sequence[str]) -> Iterator[Table]:
    """Scores before and after side by side, a line a layer; and isotropy likewise."""
    by_layer: dict[Cell, dict[str, Record]] = {}
    for r in own:
        by_layer.setdefault(r["layer"], {})[str(r["weights"])] = r
    chosen = [f"{r['weights']} layer {r['layer']}" for r in own if r["is_chosen"]]
    saw = [RUN_SAW] * (AFTER in names)
    for name, title, keys, notes in (
        (
            "layers",
            f"{own[0]['measure']} by layer",
            {s: s for s in EVALUATED if s in own[0]},
            [_counts(own[0]), f"Train chooses: {', '.join(chosen)}.", *saw],
        ),
        ("isotropy", "isotropy by layer", ISOTROPY, [_cloud(own[0])]),
    ):
        yield Table(
            f"{name}_{task}",
            f"{task}: {title}",
            ["layer", *(f"{text} {weights}" for text in keys.values() for weights in names)],
            [
                [layer, *(found.get(w, {}).get(key) for key in keys for w in names)]
                for layer, found in by_layer.items()
            ],
            notes,
        )


def _counts(r: Record) -> str:
    counts = [f"train {r['n_train']:,} ({r['n_held_out']:,} held out to choose the penalty)"]
    counts += [f"{s} {r[f'n_{s}']:,}" for s in EVALUATED if f"n_{s}" in r]
    counts += [f"no gold in {s}" for s in EVALUATED if f"n_{s}" not in r]
    floor = f"chance {r['chance']:.3g}"
    if "majority_dev" in r:
        floor += f", majority on dev {r['majority_dev']:.3f}"
    return (
        f"N: {', '.join(counts)}; {floor}; {r['n_cut']:,} sequences cut, {r['n_left_out']:,} "
        "examples left out, whose target was cut off."
    )


def _cloud(r: Record) -> str:
    return (
        f"Isotropy of the {r['n_rows']:,} different training rows: IsoScore corrected for finite "
        "samples (1 = isotropic); mean cosine (0); ln I(W) (0), which depends on N and scale, "
        "beside the median of Gaussian rows of that N, width and size."
    )


def _last(probes: Sequence[Record], like: Record) -> Record:
    own = [r for r in probes if r["task"] == like["task"] and r["weights"] == like["weights"]]
    return max(own, key=lambda r: int(r["layer"] or 0))


def _layer(record: Record) -> Cell:
    return f"→ {record['layer']}" if record["is_chosen"] else str(record["layer"])


def _interval(record: Record, split: str) -> str | None:
    low, high = record.get(f"{split}_low"), record.get(f"{split}_high")
    return None if low is None or high is None else f"{low:.3f} to {high:.3f}"
