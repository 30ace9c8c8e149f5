"""Contextuality of every layer: anisotropy, self- and intra-sentence similarity, MEV.

N rows (tokens), D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.corpora import data_set_of, missing, read_corpus
from isotrain.analysis.encode import Spans, Tokens, encode_rows, tokenise
from isotrain.analysis.jackknife import anisotropy
from isotrain.analysis.layer_figures import Line, layer_figure
from isotrain.analysis.types import Found, Outcome, Part, Picture, Record, Subject, Table
from isotrain.arguments import Bounds, checked
from isotrain.geometry.groups import (
    first_direction_share,
    group_mean_cosine,
    hashed_order,
)
from isotrain.metrics.intra_sentence_similarity import intra_sentence_similarity
from isotrain.metrics.max_explainable_variance import max_explainable_variance
from isotrain.metrics.self_similarity import self_similarity
from isotrain.types import Source

MEASURES = {  # column, its title, and the column that shows it less its baseline
    "anisotropy": "anisotropy: mean cosine of tokens of different sentences",
    "self_similarity_adjusted": "self-similarity of words, less anisotropy",
    "intra_sentence_similarity_adjusted": "intra-sentence similarity, less anisotropy",
    "max_explainable_variance_adjusted": "maximum explainable variance, less its baseline",
}


class _Sample(NamedTuple):
    """Tokens that are measured: their spans, and the number of word and sentence of each."""

    spans: Spans
    word_N: Tensor
    sentence_N: Tensor


class Contextuality:
    """Anisotropy, self-similarity, intra-sentence similarity and explained variance by layer.

    A word is a token of the tokenizer; CLS, SEP and the like are never measured. Whole sentences
    are drawn (by hashing their positions with the seed) until their tokens fill `max_rows`.

    Args:
        corpus: a data set of sentences.
        splits: of the corpus.
        max_rows: tokens for the measures of a layer.
        words: measured by themselves where they are one token and occur `min_count` times.
        max_occurrences: of each of `words`.
        min_count: occurrences that a word needs to be measured.
        punctuation: whether tokens without a letter or a digit are measured.
        published: figures to show beside.
    """

    name = "contextuality"
    question = "How anisotropic is each layer, and how much does context change a word there?"

    @checked
    def __init__(
        self,
        corpus: str = "snli",
        splits: Sequence[str] = ("dev",),
        max_rows: Annotated[int, Bounds(100)] = 20_000,
        words: Sequence[str] = (),
        max_occurrences: Annotated[int, Bounds(5)] = 1000,
        min_count: Annotated[int, Bounds(2)] = 5,
        punctuation: bool = False,
        published: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.corpus, self.splits, self.words = corpus, tuple(splits), tuple(words)
        self.data_set = data_set_of(corpus)
        self.max_rows, self.max_occurrences = max_rows, max_occurrences
        self.min_count, self.punctuation, self.published = min_count, punctuation, published

    def missing(self, source: Source) -> Sequence[str]:
        """The corpus, where the source lacks it."""
        return missing(source, [self.data_set])

    def data_sets(self, source: Source) -> Iterable[Any]:
        """The corpus."""
        return [self.data_set]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """The layers, and the chosen words."""
        yield Part("layers", lambda: self._layers(subject))
        yield Part("words", lambda: self._words(subject))

    def tables(self, outcome: Outcome) -> Iterator[Table]:
        """A row a layer; a row a word and layer."""
        layers = [r for r in outcome.records if r["kind"] == "layer"]
        columns = [k for k in layers[0] if k not in ("kind", "corpus")] if layers else []
        n = layers[0]["n_rows"] if layers else 0
        yield Table(
            "layers",
            "Layers",
            columns,
            [[r[k] for k in columns] for r in layers],
            (
                f"{n:,} tokens of {layers[0]['n_sentences']:,} different sentences of "
                f"{self.corpus} ({', '.join(self.splits)}), special tokens left out."
                if layers
                else "",
                "anisotropy: all pairs of tokens of different sentences; its error is a jackknife "
                "over sentences. Errors of the other measures are over words or sentences.",
                f"explained variance: uncentred, every word at n = {self.min_count} occurrences; "
                f"its floor is 1/n, and its baseline random tokens at the same n.",
                "adjusted: less the baseline (anisotropy, or that of explained variance).",
            ),
        )
        words = [r for r in outcome.records if r["kind"] == "word"]
        columns = [k for k in words[0] if k not in ("kind", "corpus")] if words else []
        absent = [
            f"{r['word']}: {r['reason']}" for r in outcome.records if r["kind"] == "word left out"
        ]
        yield Table(
            "words",
            "Chosen words",
            columns,
            [[r[k] for k in columns] for r in words],
            [f"left out: {'; '.join(dict.fromkeys(absent))}"] if absent else (),
        )

    def pictures(self, outcome: Outcome) -> Iterator[Picture]:
        """One a measure, over layers; self-similarity of the chosen words."""
        layers = [r for r in outcome.records if r["kind"] == "layer"]
        for column, title in MEASURES.items():
            error = {"anisotropy": "anisotropy_error"}.get(column)
            lines = [Line.of(w, own, column, error) for w, own in _by(layers, "weights").items()]
            figure = layer_figure(lines, title)
            yield Picture(
                column, title.partition(":")[0].capitalize(), figure, f"By layer: {title}."
            )
        words = [r for r in outcome.records if r["kind"] == "word"]
        for weights, own in _by(words, "weights").items():
            lines = [
                Line.of(f"{word} (n = {found[0]['n']})", found, "self_similarity_adjusted")
                for word, found in _by(own, "word").items()
            ]
            title = f"self-similarity of single words, less anisotropy ({weights})"
            name = f"words_{weights}".replace(" ", "_")
            yield Picture(
                name, title.capitalize(), layer_figure(lines, title), f"By layer: {title}."
            )

    def _layers(self, subject: Subject) -> Found:
        tokens, sample = self._sample(subject)
        rows = encode_rows(subject, "layers", tokens, sample.spans)
        records = []
        for layer, x_ND in enumerate(rows):
            subject.tell(f"measuring layer {layer} of {len(rows) - 1}")
            records.append(self._measured(torch.from_numpy(x_ND), sample, layer, subject.seed))
        return Found(records)

    def _measured(self, x_ND: Tensor, sample: _Sample, layer: int, seed: int) -> Record:
        x_ND = x_ND.double()
        cone, error = anisotropy(x_ND, sample.sentence_N)
        own = self_similarity(x_ND, sample.word_N, self.min_count)
        intra = intra_sentence_similarity(x_ND, sample.sentence_N)
        mev = max_explainable_variance(x_ND, sample.word_N, n_per_group=self.min_count, seed=seed)
        found = {
            "kind": "layer",
            "corpus": self.corpus,
            "layer": layer,
            "n_rows": len(x_ND),
            "n_sentences": len(torch.unique(sample.sentence_N)),
            "anisotropy": float(cone),
            "anisotropy_error": float(error),
            "self_similarity": float(own["value"]),
            "self_similarity_error": float(own.get("standard_error", torch.nan)),
            "self_similarity_adjusted": float(own["value"] - cone),
            "n_words": int(own["n_groups"]),
            "intra_sentence_similarity": float(intra["value"]),
            "intra_sentence_similarity_adjusted": float(intra["value"] - cone),
            "intra_sentence_above_shuffled": float(intra["above_shuffled"]),
            "max_explainable_variance": float(mev["value"]),
            "max_explainable_variance_baseline": float(mev["baseline"]),
            "max_explainable_variance_adjusted": float(mev["adjusted"]),
            "mean_norm": float(x_ND.norm(dim=1).mean()),
        }
        return found

    def _words(self, subject: Subject) -> Found:
        tokens, sample = self._sample(subject)
        chosen, records = self._occurrences(subject, tokens)
        if not chosen:
            return Found(records)
        everything = Spans(*(np.concatenate(part) for part in zip(*chosen.values(), strict=True)))
        rows = encode_rows(subject, "words", tokens, everything)
        cloud = encode_rows(subject, "layers", tokens, sample.spans)
        for layer, (x_ND, all_ND) in enumerate(zip(rows, cloud, strict=True)):
            cone = float(anisotropy(torch.from_numpy(all_ND).double(), sample.sentence_N)[0])
            baseline = self._baseline(torch.from_numpy(all_ND).double(), subject.seed)
            start = 0
            for word, spans in chosen.items():
                own_nD = torch.from_numpy(x_ND[start : start + len(spans)]).double()
                start += len(spans)
                records.append(self._word(word, own_nD, layer, cone, baseline, subject.seed))
        return Found(records)

    def _word(
        self, word: str, x_nD: Tensor, layer: int, cone: float, baseline: float, seed: int
    ) -> Record:
        group_n = torch.zeros(len(x_nD), dtype=torch.long)
        value = float(group_mean_cosine(x_nD, group_n).value_G[0])
        at_Sn = hashed_order(len(x_nD), seed)[: len(x_nD) // self.min_count * self.min_count]
        share = first_direction_share(x_nD[at_Sn.reshape(-1, self.min_count)]).mean()
        return {
            "kind": "word",
            "corpus": self.corpus,
            "word": word,
            "n": len(x_nD),
            "layer": layer,
            "self_similarity": value,
            "self_similarity_adjusted": value - cone,
            "max_explainable_variance": float(share),
            "max_explainable_variance_adjusted": float(share) - baseline,
        }

    def _baseline(self, x_ND: Tensor, seed: int) -> float:
        n_sets = min(1000, len(x_ND) // self.min_count)
        at_Sn = hashed_order(len(x_ND), ~seed)[: n_sets * self.min_count]
        return float(first_direction_share(x_ND[at_Sn.reshape(n_sets, -1)]).mean())

    def _sample(self, subject: Subject) -> tuple[Tokens, _Sample]:
        """The tokens of the corpus, and those of whole sentences that fill `max_rows`."""
        tokenizer = subject.encoder.tokenizer
        corpus = read_corpus(
            subject.source, self.corpus, self.splits, tokenizer.unk_token or "<unk>"
        )
        tokens = tokenise(tokenizer, corpus.sentences, subject.max_length)
        measured = self._is_measured(tokenizer)
        sentence, position, word = [], [], []
        for i in hashed_order(len(tokens.ids), subject.seed).tolist():
            own = [
                (t, token)
                for t, (token, special) in enumerate(
                    zip(tokens.ids[i], tokens.special[i], strict=True)
                )
                if not special and measured[token]
            ]
            if len(sentence) + len(own) > self.max_rows:
                break
            sentence += [i] * len(own)
            position += [t for t, _ in own]
            word += [token for _, token in own]
        start_N = np.array(position, dtype=np.int64)
        spans = Spans(np.array(sentence, dtype=np.int64), start_N, start_N + 1)
        return tokens, _Sample(spans, torch.tensor(word), torch.tensor(sentence))

    def _occurrences(
        self, subject: Subject, tokens: Tokens
    ) -> tuple[dict[str, Spans], list[Record]]:
        """Where each chosen word stands, at most `max_occurrences` times; and why some are not."""
        tokenizer = subject.encoder.tokenizer
        found: dict[str, Spans] = {}
        records: list[Record] = []
        order = hashed_order(len(tokens.ids), subject.seed).tolist()
        for word in self.words:
            pieces = {
                own[0]
                for text in (word, f" {word}")
                if len(own := tokenizer(text, add_special_tokens=False)["input_ids"]) == 1
            }
            places = [
                (i, t)
                for i in order
                if pieces
                for t, token in enumerate(tokens.ids[i])
                if token in pieces and not tokens.special[i][t]
            ][: self.max_occurrences]
            if len(places) < self.min_count:
                reason = f"occurs {len(places)} times" if pieces else "is several tokens"
                left_out = {"kind": "word left out", "corpus": self.corpus, "word": word}
                records.append({**left_out, "reason": reason, "n": len(places)})
                continue
            at = np.array(places, dtype=np.int64)
            found[word] = Spans(at[:, 0], at[:, 1], at[:, 1] + 1)
        return found, records

    def _is_measured(self, tokenizer: Any) -> np.ndarray:
        """Whether a token id is measured: whether it has a letter or a digit."""
        if self.punctuation:
            return np.ones(len(tokenizer), dtype=bool)
        texts = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        return np.array([any(c.isalnum() for c in str(text)) for text in texts])


def _by(records: Sequence[Record], key: str) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(str(record[key]), []).append(record)
    return found
