"""Phrases read from the distances of adjacent words, before and after outliers are cut.

N words, G gaps between adjacent words, D dimensions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import sqrt
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from isotrain.analysis.annotated import TREEBANK, Parse, find_words, parses, three_parts
from isotrain.analysis.charts import LinePlot
from isotrain.analysis.encode import encode_rows, subsample
from isotrain.analysis.outliers import find_tails, pair_cosines, treatments
from isotrain.analysis.show import Frames, TableSpec, best_on_dev
from isotrain.analysis.types import Analysis, Part, PartResult, Record, Subject, analysis
from isotrain.tasks.data.sources import Source

Span = tuple[int, int]
Gold = Mapping[Span, set[str]]
LABELS = ("NP", "VP", "PP", "ADJP", "ADVP", "SBAR")
EPSILON = 1e-6  # of whitening
N_RANDOM = 5  # random trees of a sentence
HALVES = ("dev", "test")


def phrases(parse: Parse) -> tuple[list[int], Gold]:
    """Positions of the words of a sentence, and its phrases, by the numbers of these words.

    Punctuation is left out, as are single words and the whole sentence.

    >>> from isotrain.analysis.annotated import parsed
    >>> phrases(parsed("(S (NP (DT the) (, ,) (NN dog)) (VP (VBZ barks)))"))
    ([0, 2, 3], {(0, 2): {'NP'}})
    """
    positions = [k for k, is_word in enumerate(parse.is_word) if is_word]
    gold: dict[Span, set[str]] = {}
    for span, labels in parse.spans.items():
        start, stop = np.searchsorted(positions, span).tolist()
        if 1 < stop - start < len(positions):
            gold[start, stop] = gold.get((start, stop), set()) | labels
    return positions, gold


def split_tree(distance_G: Sequence[float] | np.ndarray) -> set[Span]:
    """Phrases of the binary tree that splits each phrase at its largest distance.

    The first of equal distances splits. Without single words and the whole sentence, which every
    tree has. Shen et al. 2018 (top-down).

    >>> sorted(split_tree([0.1, 0.9, 0.2]))
    [(0, 2), (2, 4)]
    """
    spans, todo = set(), [(0, len(distance_G) + 1)]
    while todo:
        start, stop = todo.pop()
        if stop - start > 1:
            spans.add((start, stop))
            middle = start + 1 + int(np.argmax(distance_G[start : stop - 1]))
            todo += [(start, middle), (middle, stop)]
    return spans - {(0, len(distance_G) + 1)}


def f1(predicted: Iterable[Span], gold: Iterable[Span]) -> float:
    """Unlabelled F1 of the phrases of a sentence, in [0, 1]: 2·|both|/(|predicted| + |gold|).

    >>> f1({(0, 2), (2, 4)}, {(0, 2)})
    0.6666666666666666
    """
    predicted, gold = {*predicted}, {*gold}
    return 2 * len(predicted & gold) / (len(predicted) + len(gold))


def balanced(n: int) -> list[float]:
    """Distances of n words whose tree splits in the middle: the first part has the odd word.

    >>> balanced(5)
    [-3.0, -2.0, -1.0, -2.0]
    """
    if n < 2:
        return []
    half = (n + 1) // 2
    return [x - 1 for x in balanced(half)] + [-1.0] + [x - 1 for x in balanced(n - half)]


def baselines(n: int, generator: np.random.Generator) -> dict[str, list[set[Span]]]:
    """Trees of n words without an encoder, by name."""
    ascending = np.arange(float(n - 1))
    return {
        "right branching": [split_tree(-ascending)],
        "left branching": [split_tree(ascending)],
        "balanced": [split_tree(balanced(n))],
        "random": [split_tree(generator.random(n - 1)) for _ in range(N_RANDOM)],
    }


def distances(u_GD: Tensor, v_GD: Tensor) -> dict[str, np.ndarray]:
    """Distances `[G]` of adjacent words: 1 − cosine, and Euclidean."""
    return {
        "cosine": (1 - pair_cosines(u_GD, v_GD)).numpy(),
        "euclidean": (u_GD - v_GD).norm(dim=1).numpy(),
    }


def scores(trees: Sequence[Sequence[set[Span]]], gold: Sequence[Gold], half_S: Any) -> Record:
    """Mean F1 of sentences on both halves, with standard errors; recall of phrases on test.

    A sentence may have several trees: its F1 is their mean.
    """
    f1_S = np.array([np.mean([f1(t, g) for t in ts]) for ts, g in zip(trees, gold, strict=True)])
    record: dict[str, Any] = {}
    for half in HALVES:
        half_f1 = f1_S[half_S == half]
        record |= {half: half_f1.mean(), f"{half}_error": half_f1.std(ddof=1) / sqrt(len(half_f1))}
        record[f"n_{half}"] = len(half_f1)
    pairs = [(ts, g) for ts, g, half in zip(trees, gold, half_S, strict=True) if half == "test"]
    for label in LABELS:
        hits = [s in t for ts, g in pairs for t in ts for s, names in g.items() if label in names]
        record[f"recall_{label}"] = float(np.mean(hits)) if hits else None
    return record


def _best_layers(frames: Frames) -> pd.DataFrame:
    """For each treatment the layer and distance with the best F1 on dev; then the baselines."""
    best = best_on_dev(frames.of("grammar"), ["weights", "treatment"])
    return pd.concat([best, frames.of("baseline")])


@analysis
class PhraseGrammar(Analysis):
    """How well do distances of adjacent words find the phrases of a treebank, at each layer?

    A phrase is split where two adjacent words are farthest apart, from the sentence down; the
    phrases found are compared with those of the treebank. Embeddings are as they are (`none`),
    with their outlier dimensions set to zero (`cut`), and whitened. Kim et al. 2020, Luo 2020.
    The arguments are the keys of `conf/analysis/phrase_grammar.yaml`.
    """

    name = "phrase_grammar"
    question = "Do distances between adjacent words find phrases, and do outlier dimensions matter?"
    TABLES: ClassVar = (
        TableSpec(
            "phrases",
            "Phrases found by distances of adjacent words",
            of=_best_layers,
            index={"treatment": "embeddings"},
            values={
                **{"layer": "layer", "distance": "distance", "dev": "dev F1", "test": "test F1"},
                **{f"recall_{label}": label for label in LABELS},
            },
            notes=(
                "Unlabelled F1, a mean over sentences ({n_dev:,} of dev, {n_test:,} of test), ± "
                "95 % CI. Layer and distance have the best F1 on dev. NP to SBAR: share of "
                "the phrases of test that are found. Single words, whole sentences and punctuation "
                "are left out.",
            ),
        ),
        TableSpec(
            "layers",
            "Test F1 of each layer",
            of="grammar",
            index={"layer": "layer", "distance": "distance"},
            values={"test": ""},
            across="treatment",
        ),
    )
    PLOTS: ClassVar = (
        LinePlot(
            "phrases",
            "Phrases found, by layer",
            "By layer: F1 of phrases found by the distances of adjacent words.",
            of="grammar",
            y={"test": "test F1"},
            hue="treatment",
            panel="distance",
            ylabel="unlabelled F1",
        ),
    )

    max_sentences: Annotated[int, Field(ge=20)] = 2000
    max_rows: Annotated[int, Field(ge=100)] = 20000
    threshold: Annotated[float, Field(gt=0)] = 3.0
    layers_share: Annotated[float, Field(gt=0, le=1)] = 0.75

    def data_sets(self, source: Source) -> Sequence[Any]:
        """The treebank."""
        return [TREEBANK]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """One part."""
        yield Part("phrases", partial(self._measured, subject))

    def _measured(self, subject: Subject) -> PartResult:
        all_parses = [parse for parse in parses(subject.source) if phrases(parse)[1]]
        sample = subsample(all_parses, self.max_sentences, subject.seed)
        tails = find_tails(
            subject,
            [" ".join(parse.words) for parse in sample],
            *(self.max_rows, self.threshold, self.layers_share),
        )
        word_positions = [phrases(parse)[0] for parse in sample]
        words = find_words(
            subject.encoder.tokenizer,
            [parse.words for parse in sample],
            subject.max_length,
            word_positions,
        )
        count_S = np.bincount(words.spans.sentence_N, minlength=len(sample))
        is_whole_S = count_S == np.array([len(positions) for positions in word_positions])
        gold = [
            phrases(parse)[1]
            for parse, is_whole in zip(sample, is_whole_S, strict=True)
            if is_whole
        ]
        half_S = np.where(three_parts(len(gold), subject.seed) == "train", "test", "dev")
        facts = {"n_cut": int((~is_whole_S).sum()), "n_outliers": len(tails.dims)}
        generator = np.random.default_rng(subject.seed)
        trees = [baselines(n, generator) for n in count_S[is_whole_S]]
        records: list[Record] = [
            {
                "kind": "baseline",
                "treatment": name,
                **scores([t[name] for t in trees], gold, half_S),
            }
            for name in trees[0]
        ]
        sentence_N = words.spans.sentence_N
        for layer, x_ND in enumerate(encode_rows(subject, words.tokens, words.spans)):
            x = torch.from_numpy(x_ND)
            for name, treat in treatments(x, tails.dims, EPSILON).items():
                gaps = distances(treat(x[:-1]), treat(x[1:]))
                for distance, gap_M in gaps.items():
                    sentence_gaps = np.split(gap_M, np.flatnonzero(np.diff(sentence_N)) + 1)
                    layer_trees = [
                        [split_tree(gap_G[: n - 1])]
                        for gap_G, n, is_whole in zip(
                            sentence_gaps,
                            count_S[count_S > 0],
                            is_whole_S[count_S > 0],
                            strict=True,
                        )
                        if is_whole
                    ]
                    keys = {"treatment": name, "layer": layer, "distance": distance}
                    records.append(
                        {"kind": "grammar", **keys, **scores(layer_trees, gold, half_S), **facts}
                    )
        return PartResult(records)
