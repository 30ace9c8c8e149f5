"""What the analysis of contextuality found, to read; made of its records alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from isotrain.analysis.types import Cell, Record, Table

LAYERS = {  # column of a record, or of its value and error, and its heading
    "anisotropy": "anisotropy",
    "self_similarity_adjusted": "self-similarity",
    "intra_sentence_similarity_adjusted": "intra-sentence",
    "max_explainable_variance_adjusted": "explained variance",
}
UNADJUSTED = {
    "self_similarity": "self-similarity",
    "intra_sentence_similarity": "intra-sentence",
    "intra_sentence_leave_one_out": "leave one out",
    "intra_sentence_above_shuffled": "above shuffled",
    "max_explainable_variance": "explained",
    "max_explainable_variance_baseline": "of random",
    "mean_norm": "norm",
}
WORDS = {
    "self_similarity_adjusted": "Self-similarity of single words, less anisotropy",
    "max_explainable_variance_adjusted": "Explained variance of single words, less its baseline",
}


def tables(records: Sequence[Record]) -> Iterator[Table]:
    """Adjusted and unadjusted measures by layer, forms of explained variance, chosen words."""
    layers = [r for r in records if r["kind"] == "layer"]
    if layers:
        yield _adjusted(layers)
        yield _unadjusted(layers)
        yield _static(layers)
    chosen = [r for r in records if r["kind"] == "word"]
    absent = {str(r["word"]): r["reason"] for r in records if r["kind"] == "word left out"}
    left_out = [f"Left out: {'; '.join(f'{w} ({why})' for w, why in absent.items())}."]
    for column, title in WORDS.items() if chosen or absent else ():
        yield _of_words(chosen, column, title, left_out if absent else [])


def _adjusted(layers: Sequence[Record]) -> Table:
    errors = {column: f"{column}_error" for column in LAYERS}
    rows = [
        [*_place(r, layers), *(_with_error(r[column], r[errors[column]]) for column in LAYERS)]
        for r in _ordered(layers)
    ]
    first = layers[0]
    cut = f"; {first['n_cut']:,} of these sentences were cut" if first["n_cut"] else ""
    notes = (
        f"{first['n_rows']:,} {first['unit']}s of {first['n_sentences']:,} different sentences of "
        f"{first['corpus']}, which has {first['n_corpus']:,}; special tokens left out{cut}. "
        f"{first['n_words']:,} different ones occur {first['min_count']} times or more.",
        "Anisotropy: mean cosine of two words of different sentences, over all pairs. The next "
        "two are mean cosines less anisotropy: of two occurrences of a word, and of a word with "
        "the mean of its sentence.",
        f"Explained variance: share of the first singular direction of {first['min_count']} "
        f"occurrences of a word, less that of {first['min_count']} random words; uncentred.",
        "± 1.96 standard errors: a jackknife that leaves out a sentence at a time, of the "
        "difference where something is subtracted; of explained variance over words and over "
        "random sets, added in quadrature.",
    )
    return Table("layers", "Layers, adjusted", [*_places(layers), *LAYERS.values()], rows, notes)


def _unadjusted(layers: Sequence[Record]) -> Table:
    rows = [[*_place(r, layers), *(r[column] for column in UNADJUSTED)] for r in _ordered(layers)]
    notes = (
        "Intra-sentence: of a word with the mean of its sentence, itself among it. A cone of mean "
        "cosine ρ alone puts it, less anisotropy, at √(ρ + (1−ρ)/n) − ρ in a sentence of n words: "
        "1/√n where ρ = 0.",
        "Leave one out: with the mean of the other words, 0 where ρ = 0, but ρ/√(ρ + (1−ρ)/(n−1)) "
        "in a cone. Above shuffled: intra-sentence less that of sentences of the same lengths "
        "whose words are dealt out anew; 0 in any cone where no sentence shows.",
        f"Explained variance is at least 1/{layers[0]['min_count']}; of random: that of as many "
        "random words; norm: mean length of rows. Standard errors are in records.csv.",
    )
    headings = [*_places(layers), *UNADJUSTED.values()]
    return Table("unadjusted", "Layers, unadjusted", headings, rows, notes)


def _static(layers: Sequence[Record]) -> Table:
    """The share that a static vector explains, in four forms; the last rows are means."""
    forms = ("uncentred", "centred", "repository: code", "repository: figures")
    rows: list[list[Cell]] = [
        [*_place(r, layers), *(_with_error(*form) for form in _forms(r))] for r in _ordered(layers)
    ]
    for weights in dict.fromkeys(r["weights"] for r in layers):
        above = [r for r in layers if r["weights"] == weights and r["layer"] != 0]
        if above:
            by_form = zip(*map(_forms, above), strict=True)
            means = [sum(value for value, _ in of_form) / len(above) for of_form in by_form]
            place: Record = {"layer": "mean above 0", "weights": weights}
            rows.append([*_place(place, layers), *(_with_error(mean, None) for mean in means)])
    n = layers[0]["min_count"]
    notes = (
        "Share of the variance of a word that one vector explains, mean over words, less that of "
        f"random words. Uncentred (definition 3) and centred: first direction of {n} occurrences, "
        f"of words and of random words alike.",
        "Repository (kawine/contextual): of all occurrences of a word; its code: first principal "
        "component; its figures: variance along the first uncentred direction, since many of them "
        "are smaller than a first principal component can be. Less, in both, the variance along "
        "the first uncentred direction of up to 1,000 random words.",
        "Published: below 0.05 on average; the last form is the one to hold against it. "
        "± 1.96 standard errors over words.",
    )
    return Table("static", "What a static vector explains", [*_places(layers), *forms], rows, notes)


def _forms(record: Record) -> list[tuple[float, Cell]]:
    """The share of each form, less its baseline, with its error."""
    found = {key: float(v) for key, v in record.items() if isinstance(v, int | float)}
    names = ("max_explainable_variance_adjusted", "max_explainable_variance_centred_adjusted")
    both = [(found[name], record[f"{name}_error"]) for name in names]
    of_repository = ("static_principal", "static_singular")
    random = found["static_random"]
    return both + [(found[name] - random, record[f"{name}_error"]) for name in of_repository]


def _of_words(chosen: Sequence[Record], column: str, title: str, left_out: list[str]) -> Table:
    """Layers down, words across."""
    words = list(dict.fromkeys(str(r["word"]) for r in chosen))
    by_place: dict[tuple[Cell, ...], dict[str, Cell]] = {}
    for record in _ordered(chosen):
        by_place.setdefault(tuple(_place(record, chosen)), {})[str(record["word"])] = record[column]
    rows = [[*place, *(cells.get(word) for word in words)] for place, cells in by_place.items()]
    counts = {str(r["word"]): r["n"] for r in chosen}
    widest = max((float(r[f"{column}_error"] or 0.0) for r in chosen), default=0.0)
    n = ", ".join(f"{word} {count:,}" for word, count in counts.items())
    notes = [f"Occurrences: {n}. Largest standard error: {widest:.2g}."] if chosen else []
    return Table(f"words_{column}", title, [*_places(chosen), *words], rows, notes + left_out)


def _ordered(records: Sequence[Record]) -> list[Record]:
    """By layer, so that before and after stand one below the other."""
    return sorted(records, key=lambda record: int(record["layer"] or 0))


def _places(records: Sequence[Record]) -> list[str]:
    return ["layer", "weights"] if _several(records) else ["layer"]


def _place(record: Record, records: Sequence[Record]) -> list[Cell]:
    return [record[column] for column in _places(records)]


def _several(records: Sequence[Record]) -> bool:
    return len({record["weights"] for record in records}) > 1


def _with_error(value: Cell, error: Cell) -> str:
    """A value and 1.96 standard errors, to read.

    >>> _with_error(0.12345, 0.001), _with_error(0.5, None)
    ('0.123 ± 0.002', '0.500')
    """
    shown = f"{value:.3f}" if isinstance(value, int | float) else "–"
    return f"{shown} ± {1.96 * error:.3f}" if isinstance(error, int | float) else shown
