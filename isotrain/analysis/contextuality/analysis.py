"""Contextuality by layer: anisotropy, self- and intra-sentence similarity, explained variance."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from isotrain.analysis.contextuality.measures import (
    Baseline,
    baseline,
    layer_measures,
    word_measures,
)
from isotrain.analysis.contextuality.show import PLOTS, TABLES
from isotrain.analysis.data_sets import check_names, data_set_of, read_corpus
from isotrain.analysis.encode import Spans, Tokens, encode_rows
from isotrain.analysis.selection import (
    Sample,
    Unit,
    Units,
    draw_occurrences,
    draw_sentences,
)
from isotrain.analysis.types import Analysis, Found, Part, Record, Subject, analysis
from isotrain.tasks.data.sources import SPLITS, Source

WORDS = ("beverage", "dog", "man", "the", "of", "playing", "water", "white")


class _Drawn(NamedTuple):
    """A corpus, its word units, and the words that the layers are measured on."""

    sentences: Sequence[str]
    units: Units
    sample: Sample
    about: Mapping[str, Any]  # of all this, for every record


@analysis
class Contextuality(Analysis):
    """Anisotropy, self-similarity, intra-sentence similarity and explained variance by layer.

    Whole sentences are drawn (by hashing their places with the seed) until their words fill
    `max_rows`, without special and unknown tokens; repeated sentences count once. The arguments
    are the keys of `conf/analysis/contextuality.yaml`.
    """

    name = "contextuality"
    question = "How anisotropic is each layer, and how much does context change a word there?"
    TABLES, PLOTS = TABLES, PLOTS

    corpus: str = "snli"
    splits: Sequence[str] = ("train", "dev", "test")
    unit: Unit = "piece"
    max_rows: Annotated[int, Field(ge=100)] = 20_000
    words: Sequence[str] = WORDS
    max_occurrences: Annotated[int, Field(ge=5)] = 1000
    min_count: Annotated[int, Field(ge=3)] = 5
    punctuation: bool = False
    published: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        """Check the names."""
        check_names("splits", self.splits, SPLITS, available=False)
        data_set_of(self.corpus)

    def data_sets(self, source: Source) -> Sequence[Any]:
        """The corpus."""
        return [data_set_of(self.corpus)]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """The layers, and the chosen words."""
        drawn = cache(partial(self._drawn, subject))

        @cache
        def base(layer: int) -> Baseline:  # for both parts
            sample = drawn().sample
            x_ND = _float64(encode_rows(subject, "layers", sample.tokens, sample.spans)[layer])
            return baseline(x_ND, sample.sentence_N, self.min_count, subject.seed)

        yield Part("layers", lambda: self._layers(subject, drawn(), base))
        if self.words:
            yield Part("words", lambda: self._words(subject, drawn(), base))

    def _layers(self, subject: Subject, drawn: _Drawn, base: Any) -> Found:
        sample = drawn.sample
        rows_LND = encode_rows(subject, "layers", sample.tokens, sample.spans)
        records = []
        for layer, rows_ND in enumerate(rows_LND):
            subject.tell(f"measuring layer {layer} of {len(rows_LND) - 1}")
            groups = sample.word_N, sample.sentence_N
            x_ND = _float64(rows_ND)
            found = layer_measures(x_ND, *groups, self.min_count, subject.seed, base(layer))
            records.append({"kind": "layer", **drawn.about, "layer": layer, **found})
        return Found(records)

    def _words(self, subject: Subject, drawn: _Drawn, base: Any) -> Found:
        sentences, units, sample, about = drawn
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
            start = 0
            for word, spans in places.items():
                own_nD = _float64(rows_ND[start : start + len(spans)])
                start += len(spans)
                sentence_n = number_of[torch.from_numpy(spans.sentence_N)]
                found = word_measures(own_nD, sentence_n, self.min_count, subject.seed, base(layer))
                records.append({"kind": "word", **about, "layer": layer, "word": word, **found})
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
        """Positions of the chosen words, and why some are left out."""
        keys = {word: units.keys_of(word) for word in self.words}
        left_out = {word: reason for word, (_, reason) in keys.items() if reason}
        known = {word: found for word, (found, reason) in keys.items() if not reason}
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
