"""Tails: outlier dimensions of an encoder, their origin, and the effect of clipping them.

N rows (tokens), D dimensions.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor

from isotrain.analysis.data_sets import PLACES, check_names, data_set_of, read_corpus
from isotrain.analysis.encode import encode_rows
from isotrain.analysis.jackknife import Estimate, anisotropy, mean_of, self_similarity
from isotrain.analysis.selection import Sample
from isotrain.analysis.tails.origin import norm_records, table_records
from isotrain.analysis.tails.search import Search, draw_tokens, find_tails, search_records
from isotrain.analysis.tails.show import PLOTS, TABLES
from isotrain.analysis.tails.treated import (
    CUT,
    NONE,
    TREATMENTS,
    sts_records,
    sts_sets,
    treatments,
    wic_records,
)
from isotrain.analysis.types import Analysis, Found, Part, Record, Subject, analysis
from isotrain.geometry.groups import check_groups, large_groups
from isotrain.tasks import wic
from isotrain.tasks.data.sources import SPLITS, Source


@analysis
class Tails(Analysis):
    """Outlier dimensions of every layer, their origin, and embeddings with them cut, or whitened.

    A dimension is an outlier where its entry of the mean vector lies more than `threshold`
    standard deviations (over the D entries) from their mean, in at least `layers_share` of the
    layers above the embeddings. Outliers are found, and whitening is fitted, on tokens of
    `fit_split`; tokens of `split`, of other sentences, are measured: as they are, with outliers
    set to zero in every layer (the encoder is not run again), and whitened. So are the target
    words of WiC and the mean-pooled sentences of the STS sets that the source has. The arguments
    are the keys of `conf/analysis/tails.yaml`.
    """

    name = "tails"
    question = "Which dimensions dominate, where do they come from, and what does cutting them do?"

    TABLES, PLOTS = TABLES, PLOTS

    corpus: str = "wikitext-2"
    fit_split: str = "train"
    split: str = "dev"
    max_rows: Annotated[int, Field(ge=100)] = 20_000
    threshold: Annotated[float, Field(gt=0)] = 3.0
    layers_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    min_count: Annotated[int, Field(ge=2)] = 5
    epsilon: Annotated[float, Field(ge=0)] = 1e-6
    max_pairs: Annotated[int | None, Field(ge=10)] = None
    published: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        """Check the names."""
        if self.fit_split == self.split:
            raise ValueError(
                f"split must differ from fit_split, got {self.split} for both: whitening looks too "
                "good on the rows it was fitted on; take fit_split=train split=dev"
            )
        check_names("splits", (self.fit_split, self.split), SPLITS, available=False)
        data_set_of(self.corpus)

    def data_sets(self, source: Source) -> Iterable[Any]:
        """The corpus, and the available ones of WiC and the STS sets."""
        found = [data_set_of(self.corpus), *([] if source.missing(wic.DATA) else [wic.DATA])]
        return [*found, *(PLACES[name].data_set for name in sts_sets(source))]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """The layers, the origin of outliers, and WiC and STS if the source has them."""
        source, epsilon, most = subject.source, self.epsilon, self.max_pairs
        search = cache(partial(self._search, subject))  # read and encoded once for all parts
        yield Part("layers", lambda: self._layers(subject, search()))
        at = subject.encoder
        yield Part(
            "origin",
            lambda: Found([*norm_records(at, search().dims), *table_records(at, search().dims)]),
        )
        if not source.missing(wic.DATA):
            yield Part("wic", lambda: Found(wic_records(subject, search().dims, epsilon, most)))
        if sets := sts_sets(source):
            yield Part(
                "sts", lambda: Found(sts_records(subject, sets, search().dims, epsilon, most))
            )

    def _sentences(self, subject: Subject, split: str) -> list[str]:
        unknown = subject.encoder.tokenizer.unk_token or "<unk>"
        return read_corpus(subject.source, self.corpus, [split], unknown)

    def _search(self, subject: Subject) -> Search:
        sentences = self._sentences(subject, self.fit_split)
        return find_tails(subject, sentences, self.max_rows, self.threshold, self.layers_share)

    def _layers(self, subject: Subject, tails: Search) -> Found:
        records = search_records(tails)
        fitted = {*self._sentences(subject, self.fit_split)}
        others = [s for s in self._sentences(subject, self.split) if s not in fitted]
        sample = draw_tokens(subject, others, self.max_rows)
        measured = encode_rows(subject, "measured", sample.tokens, sample.spans)
        falls: list[Estimate] = []
        for layer, (fit_ND, x_ND) in enumerate(zip(tails.rows_LND, measured, strict=True)):
            subject.tell(f"measuring layer {layer} of {len(measured) - 1}")
            maps = treatments(torch.from_numpy(fit_ND), tails.dims, self.epsilon)
            cones: dict[str, Estimate] = {}
            for name in TREATMENTS:
                own_ND = maps[name](torch.from_numpy(x_ND))
                cones[name] = anisotropy(own_ND, sample.sentence_N)
                records.append(self._treated(own_ND, cones[name], sample, layer, name))
            falls.append(cones[NONE].less(cones[CUT]))
        fall = mean_of(falls[1:] or falls)
        cut: Record = {
            "kind": "cut",
            "n_layers": len(falls[1:] or falls),
            "n_dimensions": len(tails.dims),
            **fall.figures("anisotropy_fall"),
        }
        return Found([*records, cut], {"scores": tails.score_LD.float().numpy()})

    def _treated(
        self, x_ND: Tensor, cone: Estimate, sample: Sample, layer: int, name: str
    ) -> Record:
        own = self_similarity(x_ND, sample.word_N, sample.sentence_N, self.min_count)
        frequent_G = large_groups(check_groups(x_ND, sample.word_N), self.min_count)
        return {
            "kind": "treated",
            "treatment": name,
            "layer": layer,
            "n_rows": len(x_ND),
            "n_sentences": len(torch.unique(sample.sentence_N)),
            **cone.figures("anisotropy"),
            **own.figures("self_similarity"),
            **own.less(cone).figures("self_similarity_adjusted"),
            "n_words": int(frequent_G.sum()),
        }
