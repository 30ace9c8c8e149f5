"""What the analysis of contextuality found, to look at; made of its records alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from isotrain.analysis.layer_figures import MOST, Line, layer_figure, side_by_side
from isotrain.analysis.types import Picture, Record

CONE = "less anisotropy"


def pictures(records: Sequence[Record]) -> Iterator[Picture]:
    """The four published plots, and the self-similarity of chosen words."""
    layers = _by([r for r in records if r["kind"] == "layer"], "weights")
    words = _by([r for r in records if r["kind"] == "word"], "weights")
    if layers:
        yield _anisotropy(layers)
        yield _self_similarity(layers)
        yield _intra_sentence(layers)
    if layers and words:
        yield _of_words(layers, words, "max_explainable_variance", "explained variance")
        yield _of_words(layers, words, "self_similarity", "self-similarity")


def _anisotropy(layers: Mapping[str, Sequence[Record]]) -> Picture:
    lines = [Line.of(w, own, "anisotropy", "anisotropy_error") for w, own in layers.items()]
    n = _of(layers, "n_rows")
    title = f"anisotropy: mean cosine of words of different sentences (N = {n})"
    return Picture(
        "anisotropy",
        "Anisotropy",
        layer_figure(lines, title, "mean cosine"),
        "0: directions of words are as in an isotropic space; 1: all words point one way.",
    )


def _self_similarity(layers: Mapping[str, Sequence[Record]]) -> Picture:
    column = "self_similarity_adjusted"
    lines = [Line.of(w, own, column, f"{column}_error") for w, own in layers.items()]
    n = _of(layers, "n_words")
    return Picture(
        "self_similarity",
        "Self-similarity of words",
        layer_figure(lines, f"self-similarity, {CONE} (mean of {n} words)", "cosine, adjusted"),
        "How alike the occurrences of a word are, beyond the cone that all words share; where it "
        "falls, context changes words more.",
    )


def _intra_sentence(layers: Mapping[str, Sequence[Record]]) -> Picture:
    lines = []
    column = "intra_sentence_similarity_adjusted"
    for number, (weights, own) in enumerate(layers.items()):
        name = "" if weights == "as given" else f"{weights}: "
        adjusted = Line.of(f"{name}{CONE} (as published)", own, column, f"{column}_error")
        column_above = "intra_sentence_above_shuffled"
        called = f"{name}less shuffled sentences"
        above = Line.of(called, own, column_above, f"{column_above}_error")
        lines += [adjusted._replace(colour=2 * number), above._replace(colour=2 * number + 1)]
    n = _of(layers, "n_intra")
    title = f"intra-sentence similarity (mean of {n} sentences of two or more words)"
    return Picture(
        "intra_sentence_similarity",
        "Intra-sentence similarity",
        layer_figure(lines, title, "cosine"),
        "How alike the words of a sentence are to their mean. A narrow cone alone raises the "
        "published form; less shuffled sentences it is 0 where no sentence shows.",
    )


def _of_words(
    layers: Mapping[str, Sequence[Record]],
    words: Mapping[str, Sequence[Record]],
    column: str,
    called: str,
) -> Picture:
    """A panel for each of the weights, a line for each chosen word and one for all."""
    panels, n_most = {}, 0
    column_adjusted, error = f"{column}_adjusted", f"{column}_adjusted_error"
    for weights, own in words.items():
        lines = [
            Line.of(f"{word} (n = {found[0]['n']:,})", found, column_adjusted, error)
            for word, found in _by(own, "word").items()
        ]
        n = layers[weights][0]["n_words"]
        every = Line.of(f"mean of {n:,} words", layers[weights], column_adjusted)
        panels[weights] = [*lines[: MOST - 1], every._replace(is_mean=True)]
        n_most = max(n_most, len(lines))
    less = "its baseline" if column == "max_explainable_variance" else "anisotropy"
    count = next(iter(layers.values()))[0]["min_count"]
    at = f", at {count} occurrences" if column == "max_explainable_variance" else ""
    some = f" ({MOST - 1} of {n_most})" if n_most > MOST - 1 else ""
    return Picture(
        f"words_{column}",
        f"{called.capitalize()} of chosen words",
        side_by_side(panels, f"{called} of words{some}, less {less}{at}", "adjusted"),
        f"By layer: {called} of single words, less {less}; n is how often a word occurs here.",
    )


def _of(layers: Mapping[str, Sequence[Record]], column: str) -> str:
    return f"{next(iter(layers.values()))[0][column]:,}"


def _by(records: Sequence[Record], key: str) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(str(record[key]), []).append(record)
    return found
