"""What cutting and whitening change, as tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from isotrain.analysis.tails.treatments import NONE, TREATMENTS
from isotrain.analysis.types import Cell, Record, Table

SPLITS = ("dev", "test")


def treated_tables(kinds: Mapping[str, Sequence[Record]], lead: list[str]) -> Iterator[Table]:
    """Anisotropy, self-similarity, WiC and STS by treatment, as far as they were measured.

    `lead`: the key of several weights, whose lines stand together; else nothing.
    """
    yield from _measures(kinds["treated"], kinds["cut"], lead)
    if chosen := kinds.get("wic chosen", []):
        splits = [s for s in SPLITS if s in chosen[0]]
        yield _wic_table(chosen, splits, lead)
        columns = [f"{s} {t}" for s in splits for t in TREATMENTS]
        yield Table(
            "wic_layers",
            "WiC: accuracy of each layer",
            [*lead, "layer", *columns],
            [
                [
                    *(own[NONE][key] for key in [*lead, "layer"]),
                    *(own[t][s] for s in splits for t in TREATMENTS),
                ]
                for own in _cases(kinds["wic"], ("layer", "weights"))
            ],
            ["The threshold of each layer is the best of train."],
        )
    if sts := kinds.get("sts", []):
        left_out = dict.fromkeys(str(r["why"]) for r in kinds.get("sts left out", []))
        yield _last_sts_table(sts, lead, list(left_out))
        yield _sts_table(sts, lead)


def _measures(
    treated: Sequence[Record], cuts: Sequence[Record], lead: list[str]
) -> Iterator[Table]:
    r = treated[0]
    cloud = f"{r['n_rows']:,} tokens of {r['n_sentences']:,} other sentences"
    cases = _cases(treated, ("layer", "weights"))
    yield Table(
        "anisotropy",
        "Anisotropy by treatment",
        [*lead, "layer", *(c for t in TREATMENTS for c in (t, f"± {t}"))],
        [
            [
                *(own[NONE][key] for key in [*lead, "layer"]),
                *(own[t][key] for t in TREATMENTS for key in ("anisotropy", "anisotropy_error")),
            ]
            for own in cases
        ],
        [
            f"{cloud}: mean cosine of two of different sentences, ± one standard error "
            "(jackknife over sentences).",
            "none: as the encoder gives them; cut: outlier dimensions set to zero in the rows of "
            "each layer, the encoder is not run again; whitened: by the mean and directions of "
            "train rows alone.",
            *(
                f"Cutting lowers the mean over layers above the embeddings by "
                f"{r['anisotropy_fall']:.3f} ± {r['anisotropy_fall_error']:.3f}"
                f"{' (' + str(r['weights']) + ')' if lead else ''}."
                for r in cuts
            ),
        ],
    )
    yield Table(
        "self_similarity",
        "Self-similarity of words less anisotropy, by treatment",
        [*lead, "layer", *(c for t in TREATMENTS for c in (t, f"± {t}"))],
        [
            [
                *(own[NONE][key] for key in [*lead, "layer"]),
                *(
                    own[t][key]
                    for t in TREATMENTS
                    for key in ("self_similarity_adjusted", "self_similarity_adjusted_error")
                ),
            ]
            for own in cases
        ],
        [
            f"{cloud}; {r['n_words']:,} tokens of the vocabulary that occur often enough, "
            "± one standard error of the difference (jackknife over sentences)."
        ],
    )


def _wic_table(chosen: Sequence[Record], splits: Sequence[str], lead: list[str]) -> Table:
    lines: list[list[Cell]] = []
    for r in chosen:
        line = [r[key] for key in [*lead, "treatment", "layer", "threshold", "train"]]
        for s in splits:
            line += [r[s], f"{r[f'{s}_low']:.3f} to {r[f'{s}_high']:.3f}"]
        lines.append([*line, *(r[f"optimistic_{s}"] for s in splits)])
    constant: list[Cell] = [*(None for _ in lead), "always same", None, None, None]
    for s in splits:
        constant += [chosen[0][f"constant_true_{s}"], None]
    lines.append([*constant, *(None for _ in splits)])
    columns = ["treatment", "layer", "threshold", "train"]
    columns += [c for s in splits for c in (s, f"{s} 95 %")]
    n = ", ".join(f"{s} {chosen[0][f'n_{s}']:,}" for s in ("train", *splits))
    n_fit = f"{chosen[0]['n_fit']:,}"
    return Table(
        "wic",
        "WiC by a threshold on the cosine of the target words",
        [*lead, *columns, *(f"best cell {s}" for s in splits)],
        lines,
        [
            f"Accuracy; pairs: {n}; {chosen[0]['n_left_out']} left out, whose target was cut off. "
            "Layer and threshold are the best of train, the half of it that nothing was fitted on; "
            "Wilson intervals.",
            f"Whitened by the targets of the other half, {n_fit} pairs of other words. best cell: "
            "the best of all layers and thresholds on that very split, as published: optimistic, "
            "so it has no interval.",
        ],
    )


def _last_sts_table(sts: Sequence[Record], lead: list[str], left_out: list[str]) -> Table:
    last = max(int(r["layer"] or 0) for r in sts)
    lines: list[list[Cell]] = []
    for own in _cases([r for r in sts if r["layer"] == last], ("set", "weights")):
        line = [own[NONE][key] for key in [*lead, "set", "n_pairs"]]
        for t in TREATMENTS:
            low, high = own[t]["low"], own[t]["high"]
            line += [own[t]["spearman"], None if low is None else f"{low:.1f} to {high:.1f}"]
        lines.append(line)
    return Table(
        "sts",
        f"STS: Spearman × 100 of cosine and gold, layer {last}",
        [*lead, "set", "pairs", *(c for t in TREATMENTS for c in (t, f"{t} 95 %"))],
        lines,
        [
            "Test splits, all pairs of a set together; sentences are means over all their tokens, "
            "CLS and SEP among them. Intervals: Bonett and Wright 2000.",
            f"Whitened by {sts[0]['n_fit']:,} sentences: those of STS-B's train split that are in "
            "no test set (many pairs of STS-B are those of older sets).",
            *(f"Left out: {why}." for why in left_out),
        ],
    )


def _sts_table(sts: Sequence[Record], lead: list[str]) -> Table:
    sets = list(dict.fromkeys(str(r["set"]) for r in sts))
    by_line: dict[tuple[Cell, ...], dict[str, Cell]] = {}
    for r in sorted(sts, key=lambda r: int(r["layer"] or 0)):
        key = tuple(r[k] for k in [*lead, "layer", "treatment"])
        by_line.setdefault(key, {})[str(r["set"])] = r["spearman"]
    return Table(
        "sts_layers",
        "STS: Spearman × 100 of each layer",
        [*lead, "layer", "treatment", *sets],
        [[*key, *(own.get(s) for s in sets)] for key, own in by_line.items()],
    )


def _cases(records: Sequence[Record], keys: Sequence[str]) -> list[dict[str, Record]]:
    """The records of every treatment, for each value of the keys, in the order of the first."""
    found: dict[tuple[Cell, ...], dict[str, Record]] = {}
    for record in records:
        found.setdefault(tuple(record[k] for k in keys), {})[str(record["treatment"])] = record
    order = {first: place for place, first in enumerate(dict.fromkeys(key[0] for key in found))}
    return [found[key] for key in sorted(found, key=lambda key: order[key[0]])]
