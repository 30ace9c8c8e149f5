"""Contextuality by layer: anisotropy, self- and intra-sentence similarity, explained variance.

N rows of a layer, n rows of a word, D dimensions, S sets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.contextuality.cells import figure, in_quadrature, less
from isotrain.analysis.contextuality.figures import pictures
from isotrain.analysis.contextuality.sentence_means import sentence_means
from isotrain.analysis.contextuality.static_variance import static_variance
from isotrain.analysis.contextuality.tables import tables
from isotrain.analysis.corpora import check_splits, data_set_of, missing, read_corpus
from isotrain.analysis.encode import Spans, Tokens, encode_rows
from isotrain.analysis.jackknife import (
    Estimate,
    anisotropy,
    mean_over_sentences,
    occurrences,
    self_similarity,
)
from isotrain.analysis.types import Found, Outcome, Part, Picture, Record, Subject, Table
from isotrain.analysis.word_samples import (
    Key,
    Sample,
    Unit,
    Units,
    draw_occurrences,
    draw_sentences,
)
from isotrain.arguments import Bounds, checked
from isotrain.geometry.groups import first_direction_share, hashed_order
from isotrain.metrics.max_explainable_variance import max_explainable_variance
from isotrain.tasks.data.sources import Source

WORDS = ("beverage", "dog", "man", "the", "of", "playing", "water", "white")
N_SETS = 1000  # of random rows, for a baseline of explained variance


class _Drawn(NamedTuple):
    """A corpus, what counts as a word in it, and the words that the layers are measured on."""

    sentences: Sequence[str]
    units: Units
    sample: Sample
    about: Mapping[str, Any]  # of all this, for every record


class _Baseline(NamedTuple):
    """What the measures of words in a layer are held against."""

    cone: Estimate  # anisotropy
    share: tuple[float, float]  # explained variance of random words, and its standard error


class Contextuality:
    """Anisotropy, self-similarity, intra-sentence similarity and explained variance by layer.

    CLS, SEP and the like are never measured, nor are unknown words. Whole sentences are drawn (by
    hashing their places with the seed) until their words fill `max_rows`; repeated ones count once.

    Args:
        corpus: a data set of sentences.
        splits: of the corpus.
        unit: what a word is: a piece of the tokenizer, or the mean over the pieces of a word.
        max_rows: words for the measures of a layer.
        words: measured by themselves where they occur `min_count` times.
        max_occurrences: of each of `words`.
        min_count: occurrences that a word needs to be measured.
        punctuation: whether what has no letter and no digit is measured.
        published: figures to show beside.

    Raises:
        ValueError: there is no such corpus or split.
    """

    name = "contextuality"
    question = "How anisotropic is each layer, and how much does context change a word there?"

    @checked
    def __init__(
        self,
        corpus: str = "snli",
        splits: Sequence[str] = ("train", "dev", "test"),
        unit: Unit = "piece",
        max_rows: Annotated[int, Bounds(100)] = 20_000,
        words: Sequence[str] = WORDS,
        max_occurrences: Annotated[int, Bounds(5)] = 1000,
        min_count: Annotated[int, Bounds(3)] = 5,
        punctuation: bool = False,
        published: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.corpus, self.splits, self.unit = corpus, check_splits(splits), unit
        self.data_set = data_set_of(corpus)
        self.max_rows, self.words, self.max_occurrences = max_rows, tuple(words), max_occurrences
        self.min_count, self.punctuation, self.published = min_count, punctuation, published

    def missing(self, source: Source) -> Sequence[str]:
        """The corpus, where the source lacks it."""
        return missing(source, [self.data_set])

    def data_sets(self, source: Source) -> Iterable[Any]:
        """The corpus."""
        return [self.data_set]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """The layers, and the chosen words."""
        drawn = cache(partial(self._drawn, subject))
        baseline = cache(partial(self._baseline, subject, drawn))  # of a layer, for both parts
        yield Part("layers", lambda: self._layers(subject, drawn, baseline))
        if self.words:
            yield Part("words", lambda: self._words(subject, drawn, baseline))

    def tables(self, outcome: Outcome) -> Iterator[Table]:
        """A row a layer, for all words and for each chosen one."""
        return tables(outcome.records)

    def pictures(self, outcome: Outcome) -> Iterator[Picture]:
        """Measures over layers."""
        return pictures(outcome.records)

    def _baseline(self, subject: Subject, drawn: Callable[[], _Drawn], layer: int) -> _Baseline:
        sample = drawn().sample
        x_ND = _float64(encode_rows(subject, "layers", sample.tokens, sample.spans)[layer])
        share = _mean(_random_shares(x_ND, self.min_count, subject.seed, center=False))
        return _Baseline(anisotropy(x_ND, sample.sentence_N), share)

    def _layers(
        self,
        subject: Subject,
        drawn: Callable[[], _Drawn],
        baseline: Callable[[int], _Baseline],
    ) -> Found:
        _, _, sample, about = drawn()
        rows_LND = encode_rows(subject, "layers", sample.tokens, sample.spans)
        records = []
        for layer, rows_ND in enumerate(rows_LND):
            subject.tell(f"measuring layer {layer} of {len(rows_LND) - 1}")
            found = self._measured(_float64(rows_ND), sample, baseline(layer), subject.seed)
            records.append({"kind": "layer", **about, "layer": layer, **found})
        return Found(records)

    def _measured(self, x_ND: Tensor, sample: Sample, baseline: _Baseline, seed: int) -> Record:
        """All measures of the words of a layer."""
        n, cone = self.min_count, baseline.cone
        found: dict[str, float | int] = figure("anisotropy", cone)
        own = self_similarity(x_ND, sample.word_N, sample.sentence_N, n)
        id_G, own_G, others_G, shuffled_G = sentence_means(x_ND, sample.sentence_N, seed)
        intra, others, above = (
            mean_over_sentences(value_G, id_G) for value_G in (own_G, others_G, own_G - shuffled_G)
        )
        found |= less("self_similarity", own, cone)
        found |= less("intra_sentence_similarity", intra, cone)
        found |= figure("intra_sentence_leave_one_out", others)
        found |= figure("intra_sentence_above_shuffled", above)
        found["n_intra"] = len(id_G)
        for form, center in (("", False), ("_centred", True)):
            random = baseline.share if not center else _mean(_random_shares(x_ND, n, seed, center))
            # Its own baseline, of one set here, is the same mean as `random` and has no error.
            values = max_explainable_variance(x_ND, sample.word_N, center, n, 1, seed)
            share = (float(values["value"]), float(values.get("standard_error", math.nan)))
            found |= in_quadrature(f"max_explainable_variance{form}", share, random)
        static = static_variance(x_ND, sample.word_N, sample.sentence_N, n, seed)
        found["static_random"] = float(static.random)
        for form, share_G in (("principal", static.principal_G), ("singular", static.singular_G)):
            found[f"static_{form}"], found[f"static_{form}_error"] = _mean(share_G)
        n_words = len(static.principal_G)
        return {**found, "n_words": n_words, "mean_norm": float(x_ND.norm(dim=1).mean())}

    def _words(
        self,
        subject: Subject,
        drawn: Callable[[], _Drawn],
        baseline: Callable[[int], _Baseline],
    ) -> Found:
        sentences, units, sample, about = drawn()
        tokens, places, left_out = self._occurrences(subject, sentences, units)
        records: list[Record] = [
            {"kind": "word left out", **about, "word": word, "reason": reason}
            for word, reason in left_out.items()
        ]
        if not places:
            return Found(records)
        # Sentences have one number in both samples: one that is in both moves both figures.
        number = {tuple(ids): i for i, ids in enumerate(sample.tokens.ids)}
        number_of = torch.tensor([number.setdefault(tuple(i), len(number)) for i in tokens.ids])
        every = Spans(*(np.concatenate(part) for part in zip(*places.values(), strict=True)))
        rows_LND = encode_rows(subject, "words", tokens, every)
        for layer, rows_ND in enumerate(rows_LND):
            subject.tell(f"measuring words in layer {layer} of {len(rows_LND) - 1}")
            cone, random = baseline(layer)
            start = 0
            for word, spans in places.items():
                own_nD = _float64(rows_ND[start : start + len(spans)])
                start += len(spans)
                own = occurrences(own_nD, number_of[torch.from_numpy(spans.sentence_N)])
                at_Sn = _sets(len(own_nD), self.min_count, subject.seed)
                share = _mean(first_direction_share(own_nD[at_Sn]))
                records.append(
                    {
                        "kind": "word",
                        **about,
                        "layer": layer,
                        "word": word,
                        "n": len(own_nD),
                        "n_sets": len(at_Sn),
                        **less("self_similarity", own, cone),
                        **in_quadrature("max_explainable_variance", share, random),
                    }
                )
        return Found(records)

    def _drawn(self, subject: Subject) -> _Drawn:
        tokenizer = subject.encoder.tokenizer
        unknown = tokenizer.unk_token or "<unk>"
        sentences = read_corpus(subject.source, self.corpus, self.splits, unknown)
        units = Units(tokenizer, self.unit, self.punctuation)
        sample = draw_sentences(sentences, units, subject.max_length, subject.seed, self.max_rows)
        commonest = int(sample.word_N.bincount().max())
        if commonest < self.min_count:
            raise ValueError(
                f"no word occurs {self.min_count} times among {len(sample.spans):,}, the commonest "
                f"{commonest} times; lower analysis.min_count, or raise analysis.max_rows"
            )
        about = {
            "corpus": f"{self.corpus} ({', '.join(self.splits)})",
            "unit": self.unit,
            "min_count": self.min_count,
            "n_rows": len(sample.spans),
            "n_sentences": len(sample.tokens.ids),
            "n_corpus": len(sentences),
            "n_cut": sample.tokens.n_cut,
        }
        return _Drawn(sentences, units, sample, about)

    def _occurrences(
        self, subject: Subject, sentences: Sequence[str], units: Units
    ) -> tuple[Tokens, dict[str, Spans], dict[str, str]]:
        """Where the chosen words stand, and why some of them are left out."""
        keys: dict[str, set[Key]] = {}
        left_out = {}
        for word in dict.fromkeys(self.words):
            keys[word], reason = units.keys_of(word)
            if reason:
                left_out[word] = reason
        known = {word: found for word, found in keys.items() if word not in left_out}
        tokens, places = draw_occurrences(
            sentences, units, subject.max_length, subject.seed, known, self.max_occurrences
        )
        for word, spans in places.items():
            if len(spans) < self.min_count:
                left_out[word] = f"occurs {len(spans)} times, not {self.min_count}"
        kept = {word: spans for word, spans in places.items() if word not in left_out}
        return tokens, kept, left_out


def _float64(rows_ND: np.ndarray) -> Tensor:
    return torch.from_numpy(rows_ND).double()


def _sets(n_rows: int, n: int, seed: int, most: int | None = None) -> Tensor:
    """Places `[S, n]` of disjoint sets of rows."""
    n_sets = min(n_rows // n, most or n_rows)
    return hashed_order(n_rows, seed)[: n_sets * n].reshape(n_sets, n)


def _random_shares(x_ND: Tensor, n: int, seed: int, center: bool) -> Tensor:
    """Explained variance `[S]` of sets of n random rows: the baseline of the metric."""
    return first_direction_share(x_ND[_sets(len(x_ND), n, ~seed, N_SETS)], center)


def _mean(value_S: Tensor) -> tuple[float, float]:
    """Mean and its standard error; NaN for one value."""
    error = float(value_S.std()) / len(value_S) ** 0.5 if len(value_S) > 1 else math.nan
    return float(value_S.mean()), error
