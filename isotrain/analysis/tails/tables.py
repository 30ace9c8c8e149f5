"""What an analysis of tails found in the rows of an encoder, and in its weights, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from isotrain.analysis.tails.treated_tables import treated_tables
from isotrain.analysis.types import Cell, Record, Table

MOST_DIMENSIONS = 3  # whose gains and biases stand side by side
Kinds = Mapping[str, Sequence[Record]]


def tail_tables(records: Sequence[Record], fitted_on: str, rule: str) -> Iterator[Table]:
    """All tables; of several weights the lines of one layer stand together."""
    names = list(dict.fromkeys(str(r["weights"]) for r in records))
    kinds: dict[str, list[Record]] = {}
    for record in records:
        kinds.setdefault(str(record["kind"]), []).append(record)
    lead = ["weights"] if len(names) > 1 else []
    first = kinds["layer"][0]
    cloud = f"{first['n_rows']:,} tokens of {first['n_sentences']:,} sentences of {fitted_on}"
    yield _outlier_table(kinds.get("outlier", []), names, lead, rule, cloud)
    yield _end_table(kinds["tail"], lead)
    yield _layer_table(kinds["layer"], lead, cloud)
    for weights in names:
        own = {kind: [r for r in found if r["weights"] == weights] for kind, found in kinds.items()}
        yield from _origin_tables(own, weights, f"_{weights}" if lead else "")
    yield from treated_tables(kinds, lead)


def _outlier_table(
    outliers: Sequence[Record], names: Sequence[str], lead: list[str], rule: str, cloud: str
) -> Table:
    lines: list[list[Cell]] = [
        [
            *(r[key] for key in [*lead, "rank", "dimension", "mean_score"]),
            _with_error(r, "minimum_share"),
            _with_error(r, "maximum_share"),
            f"{r['layers_beyond']} of {r['n_layers']}",
        ]
        for r in outliers
    ]
    found = {str(r["weights"]) for r in outliers}
    columns = ["rank", "dimension", "score", "share of minima", "share of maxima", "beyond in"]
    return Table(
        "outliers",
        "Outlier dimensions",
        [*lead, *columns],
        lines,
        [
            f"An outlier has {rule}; score: how far its entry of the mean vector lies from the "
            "mean of all entries, in their standard deviation; here the mean over those layers.",
            f"{cloud}, special and unknown tokens left out. Shares: of the rows of those layers "
            "whose smallest, or largest, entry sits there (± one standard error over sentences).",
            *(f"{w}: there is none, so cut changes nothing" for w in names if w not in found),
        ],
    )


def _end_table(tails: Sequence[Record], lead: list[str]) -> Table:
    keys = [*lead, "end", "rank", "dimension"]
    lines = [
        [
            *(r[key] for key in keys),
            _with_error(r, "share"),
            r["mean_score"],
            "yes" if r["is_outlier"] else "no",
        ]
        for r in tails
    ]
    return Table(
        "ends",
        "Where the smallest and the largest entry of a row sits",
        [*lead, "end", "rank", "dimension", "share", "score", "outlier"],
        lines,
        [
            f"{tails[0]['n_rows']:,} rows: those of all layers above the embeddings; ± one "
            "standard error over sentences."
        ],
    )


def _layer_table(layers: Sequence[Record], lead: list[str], cloud: str) -> Table:
    lines = [
        [
            *(r[key] for key in lead),
            r["layer"],
            r["minimum_dimension"],
            _with_error(r, "minimum_share"),
            r["maximum_dimension"],
            _with_error(r, "maximum_share"),
            r["mean_dimension"],
            _rounded(r["mean_score"]),
            r["n_beyond"],
            r["cosine_dimension"],
            _rounded(r["cosine_share"]),
        ]
        for r in sorted(layers, key=lambda r: int(r["layer"] or 0))
    ]
    columns = ["layer", "min dim", "share of minima", "max dim", "share of maxima"]
    columns += ["mean dim", "score", "beyond", "cosine dim", "of cosine"]
    return Table(
        "layers",
        "The foremost dimension of each layer",
        [*lead, *columns],
        lines,
        [
            f"{cloud}. min, max: the dimension that most often holds the smallest, the largest "
            "entry, and in what share of the rows (± one standard error over sentences).",
            "mean: the dimension with the largest |score|; beyond: dimensions over the threshold "
            "in that layer alone; cosine: the dimension that gives most of the mean cosine, and "
            "its part.",
        ],
    )


def _origin_tables(kinds: Kinds, weights: str, suffix: str) -> Iterator[Table]:
    norms = kinds.get("norm", [])
    dims = list(dict.fromkeys(r["dimension"] for r in norms))[:MOST_DIMENSIONS]
    by_norm: dict[tuple[Cell, Cell], list[Cell]] = {}
    for r in (r for r in norms if r["dimension"] in dims):
        scores = [_rounded(r.get("gain_score")), _rounded(r.get("bias_score"))]
        by_norm.setdefault((r["layer"], r["norm"]), []).extend(scores)
    if dims:
        yield Table(
            f"norms{suffix}",
            f"Gains and biases of norms at the first {len(dims)} outliers, {weights}",
            ["layer", "norm", *(f"{d} {part}" for d in dims for part in ("gain", "bias"))],
            [[*key, *values] for key, values in by_norm.items()],
            [
                "z-scores against the dimensions that are no outliers. Layer 0 is the embeddings; "
                "the last norm of a block makes its output in BERT, and stands in front of a "
                "sublayer in GPT-2. All outliers: records.csv."
            ],
        )
    by_dimension: dict[Cell, list[Cell]] = {}
    others: dict[str, Cell] = {}
    for r in kinds.get("table", []):
        others[str(r["table"]).removesuffix("_embeddings")] = r["others"]
        by_dimension.setdefault(r["dimension"], []).extend([r["size"], _rounded(r["score"])])
    if others:
        yield Table(
            f"embedding_tables{suffix}",
            f"Embedding tables at the outliers, {weights}",
            ["dimension", *(f"{name} {part}" for name in others for part in ("size", "score"))],
            [
                *([dimension, *cells] for dimension, cells in by_dimension.items()),
                ["others", *(cell for size in others.values() for cell in (size, None))],
            ],
            [
                "size: mean |entry| of the column of a table; others: the mean of that over the "
                "dimensions that are no outliers; score: the distance from it, in their sd."
            ],
        )


def _with_error(record: Record, key: str) -> str:
    return f"{record[key]:.3f} ± {record[f'{key}_error']:.3f}"


def _rounded(cell: Cell) -> Cell:
    return f"{cell:.2f}" if isinstance(cell, float) else cell
