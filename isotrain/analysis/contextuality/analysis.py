"""Contextuality by layer: anisotropy, self- and intra-sentence similarity, explained variance.

N embeddings, n of a word, D dimensions, G words or sentences, S sets.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from isotrain.analysis.contextuality.show import PLOTS, TABLES
from isotrain.analysis.data_sets import TEXTS, Corpus, Split, read_corpus
from isotrain.analysis.encode import (
    Sample,
    Spans,
    Tokens,
    Words,
    draw_occurrences,
    draw_sentences,
    encode_rows,
)
from isotrain.analysis.jackknife import (
    Estimate,
    anisotropy,
    mean_over_sentences,
    occurrences,
    self_similarity,
)
from isotrain.analysis.types import Analysis, Part, PartResult, Record, Subject, analysis
from isotrain.geometry.cosine import mean_pairwise_cosine
from isotrain.geometry.groups import (
    check_groups,
    first_direction_share,
    hashed_order,
    large_groups,
)
from isotrain.metrics.intra_sentence_similarity import sentence_cosines
from isotrain.metrics.max_explainable_variance import max_explainable_variance
from isotrain.tasks.data.sources import Source

N_SETS = 1000  # of random embeddings, for the baseline of explained variance
Measures = dict[str, float | int]


class Baseline(NamedTuple):
    """Baselines of the word measures in a layer."""

    cone: Estimate  # anisotropy
    share: tuple[float, float]  # explained variance of random words, and its standard error


def baseline(x_ND: Tensor, sentences_N: Tensor, min_count: int, seed: int) -> Baseline:
    """Anisotropy of a layer, and the explained variance of sets of random words."""
    random_SN = _sets(len(x_ND), min_count, ~seed, N_SETS)
    return Baseline(anisotropy(x_ND, sentences_N), _mean(first_direction_share(x_ND[random_SN])))


def layer_measures(
    x_ND: Tensor, words_N: Tensor, sentences_N: Tensor, min_count: int, seed: int, base: Baseline
) -> Measures:
    """All measures of the words of a layer."""
    similarity = self_similarity(x_ND, words_N, sentences_N, min_count)
    id_G, intra_G, shuffled_G = sentence_means(x_ND, sentences_N, seed)
    intra = mean_over_sentences(intra_G, id_G)
    # The metric's own baseline (one set here) has the same mean as `base`, but no error.
    explained = max_explainable_variance(x_ND, words_N, False, min_count, 1, seed)
    share = float(explained["value"]), float(explained.get("standard_error", math.nan))
    return {
        **base.cone.figures("anisotropy"),
        **_less("self_similarity", similarity, base.cone),
        **_less("intra_sentence_similarity", intra, base.cone),
        **mean_over_sentences(intra_G - shuffled_G, id_G).figures("intra_sentence_above_shuffled"),
        "n_intra": len(id_G),
        **_in_quadrature("max_explainable_variance", share, base.share),
        "n_words": int(explained["n_groups"]),
        "mean_norm": float(x_ND.norm(dim=1).mean()),
    }


def word_measures(
    x_nD: Tensor, sentences_n: Tensor, min_count: int, seed: int, base: Baseline
) -> Measures:
    """The measures of one word, over its occurrences."""
    similarity = occurrences(x_nD, sentences_n)
    at_Sn = _sets(len(x_nD), min_count, seed)
    share = _mean(first_direction_share(x_nD[at_Sn]))
    return {
        "n": len(x_nD),
        "n_sets": len(at_Sn),
        **_less("self_similarity", similarity, base.cone),
        **_in_quadrature("max_explainable_variance", share, base.share),
    }


class SentenceMeans(NamedTuple):
    """Sentences, and mean cosines of their words with two means."""

    id_G: Tensor
    actual_G: Tensor  # of all words of the sentence, as published
    shuffled_G: Tensor  # of as many shuffled words


def sentence_means(x_ND: Tensor, sentences_N: Tensor, seed: int) -> SentenceMeans:
    """Mean cosine of the words of each sentence with the mean of its words, and of shuffled ones.

    Their means over sentences are those of `intra_sentence_similarity`. Ethayarajh 2019,
    definition 2.

    >>> found = sentence_means(torch.eye(4), torch.tensor([0, 0, 1, 1]), seed=0)
    >>> [round(v, 4) for v in found.actual_G.tolist()]
    [0.7071, 0.7071]
    """
    groups = check_groups(x_ND, sentences_N)
    large_G = large_groups(groups, 2)
    shuffled = groups._replace(index_N=groups.index_N[hashed_order(len(x_ND), seed)])
    intra_G, shuffled_G = (
        sentence_cosines(x_ND, grouping)[large_G] for grouping in (groups, shuffled)
    )
    return SentenceMeans(groups.id_G[large_G], intra_G, shuffled_G)


def _less(name: str, of: Estimate, less: Estimate) -> Measures:
    return {
        **of.figures(name),
        f"{name}_baseline": float(less.value),
        **of.less(less).figures(f"{name}_adjusted"),
    }


def _in_quadrature(name: str, of: tuple[float, float], less: tuple[float, float]) -> Measures:
    """The same for sets of fixed size n, which allow no jackknife; errors add in quadrature."""
    return {
        name: of[0],
        f"{name}_error": of[1],
        f"{name}_baseline": less[0],
        f"{name}_adjusted": of[0] - less[0],
        f"{name}_adjusted_error": math.hypot(of[1], less[1]),
    }


def _sets(n_rows: int, n: int, seed: int, most: int | None = None) -> Tensor:
    """Positions `[S, n]` of disjoint sets of embeddings."""
    n_sets = min(n_rows // n, most or n_rows)
    return hashed_order(n_rows, seed)[: n_sets * n].reshape(n_sets, n)


def _mean(value_S: Tensor) -> tuple[float, float]:
    """Mean and its standard error; NaN for one value."""
    error = float(value_S.std()) / len(value_S) ** 0.5 if len(value_S) > 1 else math.nan
    return float(value_S.mean()), error


def ranked_words(
    sentences: Sequence[str], words: Words, left_out: Sequence[str], min_count: int, n: int
) -> list[str]:
    """Up to n words of all frequencies: at even steps of the logarithm of their rank.

    Ranked are the corpus' lower-cased words of letters that the tokenizer has as one piece. A
    word's frequency is that of its pieces, at least `min_count`. Ties are in alphabetical order.
    The first and the last word are included.
    """
    pieces = words.tokenizer(list(sentences), add_special_tokens=False)["input_ids"]
    counts = Counter(token for ids in pieces for token in ids)
    vocab = {word for sentence in sentences for word in re.findall(r"[^\W\d_]+", sentence.lower())}
    ids_of = {word: words.ids_of(word)[0] for word in sorted(vocab.difference(left_out))}
    count_of = {word: sum(counts[i] for i in ids) for word, ids in ids_of.items()}
    ranking = sorted((w for w in count_of if count_of[w] >= min_count), key=lambda w: -count_of[w])
    if not ranking:
        return []
    rank_n = np.geomspace(1, len(ranking), n).round().astype(int) - 1
    return [ranking[k] for k in dict.fromkeys(rank_n.tolist())]


class _EncodedCorpus(NamedTuple):
    """A corpus, and the words that the layers are measured on, with their embeddings."""

    sentences: Sequence[str]
    sample: Sample
    rows_LND: np.ndarray
    about: Mapping[str, Any]  # facts of both, for every record


def cls_measures(x_GD: Tensor) -> Measures:
    """Whether the CLS embeddings of G sentences are zero-mean: 0, up to 1/G, if they are.

    With m the mean embedding, `cls_mean_norm` = ‖m‖/mean ‖x‖ and `cls_mean_share` =
    ‖m‖²/mean ‖x‖²: 1 if all are equal. The mean cosine of two of them is near the second unless
    norms differ.

    >>> cls_measures(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))["cls_mean_share"]
    0.5
    """
    mean_D = x_GD.mean(dim=0)
    return {
        "n_cls": len(x_GD),
        "cls_mean_norm": float(mean_D.norm() / x_GD.norm(dim=1).mean()),
        "cls_mean_share": float(mean_D.square().sum() / x_GD.square().sum(dim=1).mean()),
        "cls_mean_cosine": float(mean_pairwise_cosine(x_GD)),
    }


@analysis
class Contextuality(Analysis):
    """Anisotropy, self-similarity, intra-sentence similarity and explained variance by layer.

    Whole sentences are drawn, by hashing their positions with the seed, until their words fill
    `max_rows`. Special and unknown tokens are left out; repeated sentences count once. The
    arguments are the keys of `conf/analysis/contextuality.yaml`.
    """

    name = "contextuality"
    question = "How anisotropic is each layer, and how much does context change a word there?"
    TABLES, PLOTS = TABLES, PLOTS

    corpus: Corpus = "snli"
    splits: Sequence[Split] = ("train", "dev", "test")
    max_rows: Annotated[int, Field(ge=100)] = 20_000
    words: Sequence[str] = ("beverage",)
    ranked_words: Annotated[int, Field(ge=0)] = 9
    max_occurrences: Annotated[int, Field(ge=5)] = 1000
    min_count: Annotated[int, Field(ge=3)] = 5

    def data_sets(self, source: Source) -> Sequence[Any]:
        """The corpus."""
        return [TEXTS[self.corpus].data_set]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """The layers, and the chosen words."""
        draw = cache(partial(self._encode_corpus, subject))

        @cache
        def base(layer: int) -> Baseline:  # for both parts
            x_ND, sentence_N = _float64(draw().rows_LND[layer]), draw().sample.sentence_N
            return baseline(x_ND, sentence_N, self.min_count, subject.seed)

        yield Part("layers", lambda: self._layers(subject, draw(), base))
        if self.words or self.ranked_words:
            yield Part("words", lambda: self._words(subject, draw(), base))
        tokenizer = subject.encoder.tokenizer
        has_cls = tokenizer.cls_token_id in tokenizer("")["input_ids"]
        if has_cls and subject.encoder.n_blocks > 0:  # word vectors have none for it
            yield Part("cls", lambda: self._cls(subject, draw()))

    def _layers(self, subject: Subject, corpus: _EncodedCorpus, base: Any) -> PartResult:
        groups = corpus.sample.word_N, corpus.sample.sentence_N, self.min_count, subject.seed
        return PartResult(
            [
                {"kind": "layer", **corpus.about, "layer": layer}
                | layer_measures(_float64(rows_ND), *groups, base(layer))
                for layer, rows_ND in enumerate(corpus.rows_LND)
            ]
        )

    def _words(self, subject: Subject, corpus: _EncodedCorpus, base: Any) -> PartResult:
        sentences, sample, _, about = corpus
        tokens, spans_of, reasons = self._occurrences(subject, sentences)
        records: list[Record] = [
            {"kind": "word left out", **about, "word": word, "reason": reason}
            for word, reason in reasons.items()
        ]
        if not spans_of:
            return PartResult(records)
        # A sentence has the same number in both samples, since it affects both estimates.
        number = {tuple(ids): i for i, ids in enumerate(sample.tokens.ids)}
        number_of = torch.tensor([number.setdefault(tuple(ids), len(number)) for ids in tokens.ids])
        all_spans = Spans(*(np.concatenate(part) for part in zip(*spans_of.values(), strict=True)))
        sizes = [len(spans) for spans in spans_of.values()]
        sentence_N = torch.split(number_of[torch.from_numpy(all_spans.sentence_N)], sizes)
        for layer, rows_ND in enumerate(encode_rows(subject, tokens, all_spans)):
            groups = zip(spans_of, torch.split(_float64(rows_ND), sizes), sentence_N, strict=True)
            for word, x_nD, sentence_n in groups:
                cells = word_measures(x_nD, sentence_n, self.min_count, subject.seed, base(layer))
                records.append({"kind": "word", **about, "layer": layer, "word": word, **cells})
        return PartResult(records)

    def _cls(self, subject: Subject, corpus: _EncodedCorpus) -> PartResult:
        tokens = corpus.sample.tokens
        position_G = np.array(
            [ids.index(subject.encoder.tokenizer.cls_token_id) for ids in tokens.ids]
        )
        spans = Spans(np.arange(len(position_G)), position_G, position_G + 1)
        rows = enumerate(encode_rows(subject, tokens, spans))
        fields = {"kind": "cls", "corpus": corpus.about["corpus"]}
        return PartResult(
            [{**fields, "layer": n, **cls_measures(_float64(x_GD))} for n, x_GD in rows]
        )

    def _encode_corpus(self, subject: Subject) -> _EncodedCorpus:
        tokenizer = subject.encoder.tokenizer
        unknown = tokenizer.unk_token or "<unk>"
        sentences = read_corpus(subject.source, self.corpus, self.splits, unknown)
        words = Words(tokenizer, punctuation=False)
        sample = draw_sentences(sentences, words, subject.max_length, subject.seed, self.max_rows)
        about = {
            "corpus": f"{self.corpus} ({', '.join(self.splits)})",
            "min_count": self.min_count,
            "n_rows": len(sample.spans),
            "n_sentences": len(sample.tokens.ids),
            "n_corpus": len(sentences),
            "n_cut": sample.tokens.n_cut,
        }
        return _EncodedCorpus(
            sentences, sample, encode_rows(subject, sample.tokens, sample.spans), about
        )

    def _occurrences(
        self, subject: Subject, sentences: Sequence[str]
    ) -> tuple[Tokens, dict[str, Spans], dict[str, str]]:
        """Positions of the chosen words, and why some are left out."""
        words = Words(subject.encoder.tokenizer, punctuation=False)
        candidates = list(self.words)
        if n := self.ranked_words:  # reads the whole corpus
            candidates += ranked_words(sentences, words, candidates, self.min_count, n)
        lookup = {word: words.ids_of(word) for word in candidates}
        reasons = {word: reason for word, (_, reason) in lookup.items() if reason}
        ids_of = {word: ids for word, (ids, reason) in lookup.items() if not reason}
        arguments = subject.max_length, subject.seed, ids_of, self.max_occurrences
        tokens, spans_of = draw_occurrences(sentences, words, *arguments)
        rare = {word: len(spans) for word, spans in spans_of.items() if len(spans) < self.min_count}
        reasons |= {w: f"occurs {n} times, not {self.min_count}" for w, n in rare.items()}
        return tokens, {w: spans for w, spans in spans_of.items() if w not in rare}, reasons


def _float64(rows_ND: np.ndarray) -> Tensor:
    return torch.from_numpy(rows_ND).double()
