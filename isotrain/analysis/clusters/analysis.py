"""Embeddings of the clusters analysis, and S_inter, S_intra, clusters, LID and maps of a layer.

N embeddings, D dimensions, n of a cluster, K clusters, R directions, M of a sample, C chunks, T
tokens of a chunk, V token ids.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from isotrain.analysis.clusters.show import PLOTS, TABLES
from isotrain.analysis.data_sets import RUNNING, Split
from isotrain.analysis.encode import Spans, Tokens, encode_rows
from isotrain.analysis.jackknife import anisotropy
from isotrain.analysis.show import principal_map
from isotrain.analysis.types import AFTER, Analysis, Part, PartResult, Record, Subject, analysis
from isotrain.encoders.static import build_static
from isotrain.geometry.clusters import centre_rows, choose_clusters, silhouette_values
from isotrain.geometry.cosine import mean_pairwise_cosine
from isotrain.geometry.groups import check_groups, hashed_order, sample_groups
from isotrain.metrics.lid import lid_estimate
from isotrain.metrics.self_similarity import self_similarity
from isotrain.runs.record import CannotRunError
from isotrain.tasks.data.sources import Source, load_split
from isotrain.tasks.text import UNKNOWN

N_NAMED = 6  # tokens listed per cluster
SAME = 1e-4  # relative distance below which embeddings are equal up to rounding


class Texts(NamedTuple):
    """Sampled chunks as token ids."""

    ids: np.ndarray  # [C, T]
    count_V: np.ndarray  # occurrences of each token id in all of the corpus


class Sample(NamedTuple):
    """Embeddings of every layer, in sampling order."""

    rows_LND: np.ndarray
    type_N: Tensor  # type (token id) of each embedding
    token_of: Mapping[int, str]  # text of each type
    frequency_of: Mapping[int, int]  # occurrences of each type in all of the text


def read_texts(
    subject: Subject, corpus: str, splits: Sequence[str], chunk: int, max_tokens: int
) -> Texts:
    """Sampled chunks of `chunk` tokens without CLS and SEP, up to `max_tokens`."""
    source, tokenizer = subject.source, subject.encoder.tokenizer
    rows = [row for split in splits for row in load_split(source, RUNNING[corpus], split)]
    raw_lines = (str(row["text"]).strip() for row in rows)
    lines = [line.replace(UNKNOWN, tokenizer.unk_token or UNKNOWN) for line in raw_lines if line]
    chunks_CT, count_V = cut_chunks(tokenizer, lines, chunk)
    indices = hashed_order(len(chunks_CT), subject.seed)[: max(1, max_tokens // chunk)].numpy()
    return Texts(chunks_CT[indices], count_V)


def cut_chunks(tokenizer: Any, lines: Sequence[str], chunk: int) -> tuple[np.ndarray, np.ndarray]:
    """Chunks `[C, T]` of the joined tokens of lines, the rest left out, and counts `[V]`.

    Each line is tokenised as if after a space, so that its first word has its usual type. Cai et
    al. 2021, as in their released code.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> chunks, count = cut_chunks(build_tiny(8, 1, 1).tokenizer, ["a dog", "a b ."], 2)
    >>> chunks.shape, count.sum()
    ((2, 2), np.int64(5))
    """
    texts = [f" {line}" for line in lines]
    ids = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
    stream = np.array([*chain(*ids)], dtype=np.int64)
    if len(stream) < chunk:
        raise ValueError(
            f"analysis.chunk={chunk} is more than the {len(stream)} tokens of the text"
        )
    chunks_CT = stream[: len(stream) // chunk * chunk].reshape(-1, chunk)
    return chunks_CT, np.bincount(stream, minlength=len(tokenizer))


def draw_sample(subject: Subject, texts: Texts, max_rows: int) -> Sample:
    """Up to `max_rows` tokens of the texts, sampled by hashing positions with the seed.

    The unknown token is left out. An encoder without blocks gives a type the same embedding
    everywhere, so each type is drawn once.
    """
    encoder, tokenizer, token = subject.encoder, subject.encoder.tokenizer, texts.ids.ravel()
    order = hashed_order(len(token), ~subject.seed).numpy()
    order = order[token[order] != (-1 if (i := tokenizer.unk_token_id) is None else i)]
    if encoder.n_blocks == 0:
        order = order[np.sort(np.unique(token[order], return_index=True)[1])]
    chunk_N, position_N = np.divmod(order[:max_rows], texts.ids.shape[1])
    tokens = Tokens(texts.ids.tolist(), [], np.zeros_like(texts.ids).tolist(), [], [])
    type_N = token[order[:max_rows]]
    types = np.unique(type_N).tolist()
    return Sample(
        encode_rows(subject, tokens, Spans(chunk_N, position_N, position_N + 1)),
        torch.from_numpy(type_N),
        {v: text_of(tokenizer, v) for v in types},
        {v: int(texts.count_V[v]) for v in types},
    )


def text_of(tokenizer: Any, token: int) -> str:
    """A token as text, without the marks of its tokenizer."""
    piece = tokenizer.convert_ids_to_tokens(token)
    return str(tokenizer.convert_tokens_to_string([piece])).strip()


def is_symbol(text: str) -> bool:
    """Whether a token has no letter and no digit.

    >>> is_symbol(","), is_symbol("##s")
    (True, False)
    """
    return not any(map(str.isalnum, text))


def distinct_rows(x_ND: Tensor, type_N: Tensor) -> Tensor:
    """Ascending positions of the distinct embeddings of each type (by 1e-4 of their length).

    Equal ones (static vectors, the embedding output of a token at one position, the first token of
    a causal encoder) would be neighbours at distance zero.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> distinct_rows(x, torch.tensor([7, 7, 8, 7])).tolist()
    [0, 2, 3]
    """
    generator = torch.Generator().manual_seed(0)
    direction_D = torch.randn(x_ND.shape[1], generator=generator, dtype=torch.float64)
    projection_N = x_ND.double() @ direction_D  # equal embeddings are adjacent on it
    order_N = torch.from_numpy(np.lexsort((projection_N.numpy(), type_N.numpy())))
    sorted_ND = x_ND[order_N]
    distance_N = (sorted_ND[1:] - sorted_ND[:-1]).norm(dim=1)
    same_N = (distance_N <= SAME * sorted_ND[1:].norm(dim=1)) & (type_N[order_N].diff() == 0)
    # Rounding may reorder equal embeddings, so keep the first drawn of each run.
    run_N = torch.cat([torch.zeros(1, dtype=torch.long), (~same_N).long().cumsum(dim=0)])
    first_R = torch.full((int(run_N[-1]) + 1,), len(x_ND))
    return first_R.scatter_reduce(0, run_N, order_N, "amin").sort().values


def measure_layer(
    sample: Sample, layer: int, n_map: int, rule: tuple[int, float, int], seed: int
) -> PartResult:
    """S_inter and S_intra of a layer, its clusters, and a map of `n_map` embeddings (none if 0).

    `rule`: k_max, cut and n_silhouette of `clusters_by_silhouette`.
    """
    x_ND, type_N = _distinct(sample, layer)
    clustering = clusters_by_silhouette(x_ND, *rule, seed)
    x_ND, types = x_ND.double(), type_N.tolist()
    record: dict[str, Any] = {
        "kind": "layer",
        "layer": layer,
        "n_rows": len(x_ND),
        "n_repeated": len(sample.type_N) - len(x_ND),
        "n_types": len({*types}),
        "k": clustering.k,
        "best_k": clustering.best_k,
        "silhouette": clustering.silhouette,
    }
    forms = {
        "": [(x_ND, type_N)],
        "_centred": centred_parts(x_ND, type_N, torch.zeros_like(clustering.assignment_N)),
        "_clustered": centred_parts(x_ND, type_N, clustering.assignment_N),
    }
    for form, parts in forms.items():
        inter, intra = cosines(parts, seed)
        record |= {f"s_inter{form}": inter.value, f"s_inter{form}_error": inter.error}
        record |= {f"s_intra{form}": intra.value, f"s_intra{form}_error": intra.error}
    arrays = {}
    if n_map:
        map_N3, share_3 = principal_map(x_ND, 3)
        record |= {f"map_variance_{k}": float(share_3[k - 1]) for k in (1, 2, 3)}
        map_types = types[:n_map]
        arrays = {
            f"layer-{layer}/map": map_N3[:n_map].float().numpy(),
            f"layer-{layer}/cluster": clustering.assignment_N[:n_map].short().numpy(),
            f"layer-{layer}/frequency": np.array([sample.frequency_of[t] for t in map_types]),
            f"layer-{layer}/symbol": np.array(
                [is_symbol(sample.token_of[t]) for t in types[:n_map]]
            ),
        }
    ids_by_cluster = [type_N[clustering.assignment_N == k].tolist() for k in range(clustering.k)]
    clusters = [
        {
            "kind": "cluster",
            "layer": layer,
            "cluster": k,
            "n": len(ids),
            "share": len(ids) / len(types),
            "symbols": sum(is_symbol(sample.token_of[t]) for t in ids) / len(ids),
            "n_types": len({*ids}),
            "median_frequency": float(np.median([sample.frequency_of[t] for t in ids])),
            "tokens": " ".join(sample.token_of[t] for t, _ in Counter(ids).most_common(N_NAMED)),
        }
        for k, ids in enumerate(ids_by_cluster)
    ]
    return PartResult([record, *(clusters if clustering.k > 1 else [])], arrays)


def measure_lid(sample: Sample, n_neighbors: int, max_queries: int | None, seed: int) -> PartResult:
    """LID of each layer, and its mean over the layers above the embeddings.

    The error of the mean is the mean of the errors, an upper bound: errors of layers correlate.
    """
    rule, layers = (n_neighbors, max_queries, seed), range(len(sample.rows_LND))
    lids = [dimensions(_distinct(sample, layer)[0], *rule) for layer in layers]
    above = lids[1:] or lids
    first = len(lids) - len(above)
    of_layers = " to ".join(dict.fromkeys([str(first), str(len(lids) - 1)]))
    keys = [f"{name}{end}" for name in ("lid", "lid_cosine_squared") for end in ("", "_error")]
    values = {key: [lid[key] for lid in above] for key in keys}
    mean = {key: None if None in v else sum(v) / len(v) for key, v in values.items()}  # type: ignore[arg-type]
    records = [{"kind": "lid", "layer": layer, **lid} for layer, lid in enumerate(lids)]
    counts = {"n_layers": len(above), "of_layers": of_layers}
    return PartResult([*records, {"kind": "lid mean", **counts, **mean}])


def measure_static(
    subject: Subject, vectors: str, texts: tuple[Any, ...], max_rows: int, rule: tuple[Any, ...]
) -> PartResult:
    """LID of the word vectors of the types of a text, each once; `texts` goes to `read_texts`."""
    static_subject = subject._replace(encoder=build_static(vectors).eval())
    sample = draw_sample(static_subject, read_texts(static_subject, *texts), max_rows)
    facts = {"kind": "static", "layer": Path(vectors).name, "n_types": len(sample.token_of)}
    return PartResult([{**facts, **dimensions(_distinct(sample, 0)[0], *rule)}])


def _distinct(sample: Sample, layer: int) -> tuple[Tensor, Tensor]:
    x_ND = torch.from_numpy(np.array(sample.rows_LND[layer]))
    at_N = distinct_rows(x_ND, sample.type_N)
    return x_ND[at_N], sample.type_N[at_N]


class Clustering(NamedTuple):
    """Clusters 0..k−1 in descending order of size, and how they were chosen."""

    assignment_N: Tensor
    k: int  # 1 where the silhouette is below the cut
    best_k: int  # of the best silhouette, even below the cut
    silhouette: float | None  # of best_k; None for too few embeddings


class OverParts(NamedTuple):
    """Unweighted mean over parts of a cloud, and its error; None if undefined."""

    value: float | None
    error: float | None


def clusters_by_silhouette(
    x_ND: Tensor, k_max: int, cut: float, n_silhouette: int, seed: int
) -> Clustering:
    """Clusters of `choose_clusters`, with the silhouette of `n_silhouette` sampled embeddings.

    >>> x = torch.tensor([[0.0], [0.1], [9.0], [9.1], [9.2]])
    >>> found = clusters_by_silhouette(x, 4, 0.1, 100, 0)
    >>> found.assignment_N.tolist(), found.k
    ([1, 1, 0, 0, 0], 2)
    """
    one_cluster_N = torch.zeros(len(x_ND), dtype=torch.long)
    clusters = choose_clusters(x_ND, k_max, -1.0, n_silhouette, seed)
    sample_M = hashed_order(len(x_ND), seed)[:n_silhouette]
    label_M = clusters.assignment_N[sample_M]
    if not 2 <= len(torch.unique(label_M)) < len(label_M):
        return Clustering(one_cluster_N, 1, 1, None)
    silhouette = float(silhouette_values(x_ND[sample_M], label_M).mean())
    if silhouette < cut:
        return Clustering(one_cluster_N, 1, clusters.n_clusters, silhouette)
    by_size_K = clusters.assignment_N.bincount().argsort(descending=True, stable=True)
    assignment_N = by_size_K.argsort()[clusters.assignment_N]
    return Clustering(assignment_N, clusters.n_clusters, clusters.n_clusters, silhouette)


def cosines(parts: Iterable[tuple[Tensor, Tensor]], seed: int) -> tuple[OverParts, OverParts]:
    """S_inter and S_intra over parts (embeddings, types) of a cloud, with errors over types.

    With one part, the values are those of the metrics; as published, a value is the unweighted
    mean over parts. The error of S_inter is by jackknife; over K parts, errors are √(Σ e²)/K. Parts
    without two types are left out of S_inter, those without two embeddings of a type out of
    S_intra.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> inter, intra = cosines([(x, torch.tensor([4, 4, 5]))], seed=0)
    >>> inter.value, intra.value
    (0.0, 1.0)
    """
    inter: list[tuple[float, float]] = []  # values, and errors; NaN where there are too few types
    intra: list[tuple[float, float]] = []
    for x_nD, type_n in parts:
        groups = check_groups(x_nD, type_n)
        if len(groups.id_G) > 1:
            sample_GD = x_nD[sample_groups(groups, groups.count_G > 0, 1, seed)[:, 0]]
            error = math.nan
            if len(sample_GD) > 2:
                error = float(anisotropy(sample_GD.double(), torch.arange(len(sample_GD))).error)
            inter.append((float(mean_pairwise_cosine(sample_GD)), error))
        if int(groups.count_G.max()) > 1:
            metric = self_similarity(x_nD, type_n, min_count=2)
            intra.append((float(metric["value"]), float(metric.get("standard_error", math.nan))))
    return _over_parts(inter), _over_parts(intra)


def centred_parts(
    x_ND: Tensor, type_N: Tensor, assignment_N: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """Centred embeddings of each cluster, and their types."""
    members = [assignment_N == k for k in range(int(assignment_N.max()) + 1)]
    return [(centre_rows(x_ND[at_N]), type_N[at_N]) for at_N in members]


def dimensions(
    x_ND: Tensor, n_neighbors: int, max_queries: int | None, seed: int
) -> dict[str, float | int | None]:
    """LID of a layer with Euclidean distances, and with 1 − cos.

    1 − cos is half the squared chord of unit vectors, and for squared distances LID is exactly
    half. None unless there are more embeddings than neighbours.
    """
    record: dict[str, float | int | None] = {"n_rows": len(x_ND)}
    distances: Sequence[tuple[str, Literal["euclidean", "cosine"], int]] = (
        ("lid", "euclidean", 1),
        ("lid_cosine_squared", "cosine", 2),
    )
    for name, distance, power in distances:
        record |= {name: None, f"{name}_error": None}
        if len(x_ND) > n_neighbors:
            lid = lid_estimate(x_ND, n_neighbors, distance, max_queries=max_queries, seed=seed)
            record |= {name: float(lid["value"]) / power, "n_queries": int(lid["n_queries"])}
            record[f"{name}_error"] = float(lid["standard_error"]) / power
    return record


def _over_parts(estimates: Sequence[tuple[float, float]]) -> OverParts:
    if not estimates:
        return OverParts(None, None)
    share = 1 / len(estimates)
    errors = [share * error for _, error in estimates if math.isfinite(error)]
    mean = sum(share * value for value, _ in estimates)
    return OverParts(mean, math.hypot(*errors) if errors else None)


@analysis
class Clusters(Analysis):
    """S_inter and S_intra raw, centred and inside clusters; k by silhouette; LID; maps.

    A type is a token id of the tokenizer. Tokens are drawn by hashing their positions with the
    seed, from chunks without CLS, SEP and pads; equal embeddings of a type count once. The
    arguments are the keys of `conf/analysis/clusters.yaml`.
    """

    name = "clusters"
    question = "Which clusters and low-dimensional shapes do the tokens of each layer form?"

    TABLES, PLOTS = TABLES, PLOTS

    corpus: Literal["wikitext-2", "ptb"] = "wikitext-2"
    splits: Sequence[Split] = ("train",)
    chunk: Annotated[int, Field(ge=1)] = 512
    max_tokens: Annotated[int, Field(ge=1)] = 200_000
    max_rows: Annotated[int, Field(ge=3)] = 20_000
    k_max: Annotated[int, Field(ge=2)] = 15
    cut: Annotated[float, Field(ge=-1, le=1)] = 0.1
    silhouette_rows: Annotated[int, Field(ge=3)] = 2000
    n_neighbors: Annotated[int, Field(ge=2)] = 100
    lid_queries: Annotated[int | None, Field(ge=1)] = 5000
    map_rows: Annotated[int, Field(ge=1, le=10_000)] = 3000
    static: str | None = None

    def data_sets(self, source: Source) -> Sequence[Any]:
        """The corpus."""
        return [RUNNING[self.corpus]]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """The sample, each layer, and the LID of all layers."""
        limit = subject.encoder.max_positions
        if limit and self.chunk > limit:
            raise CannotRunError(
                f"analysis.chunk must be at most {limit}, the positions of this encoder, got "
                f"{self.chunk}; set analysis.chunk={limit}"
            )
        layers = range(subject.encoder.n_blocks + 1)
        map_layers = layers[0], layers[len(layers) // 2], layers[-1]
        rule, seed = (self.k_max, self.cut, self.silhouette_rows), subject.seed
        text_arguments = subject, self.corpus, self.splits, self.chunk, self.max_tokens
        texts = cache(lambda: read_texts(*text_arguments))
        sample = cache(lambda: draw_sample(subject, texts(), self.max_rows))  # encoded once

        def measured(layer: int) -> PartResult:
            n_map = self.map_rows if layer in map_layers else 0
            return measure_layer(sample(), layer, n_map, rule, seed)

        yield Part("sample", lambda: PartResult([self._facts(texts(), sample())]))
        for layer in layers:
            yield Part(f"layer-{layer}", partial(measured, layer))
        lid = self.n_neighbors, self.lid_queries, seed
        yield Part("lid", lambda: measure_lid(sample(), *lid))
        if (vectors := self.static) and subject.weights != AFTER:  # training leaves them as is
            whole_corpus = self.corpus, self.splits, self.chunk, sys.maxsize
            yield Part(
                "static", lambda: measure_static(subject, vectors, whole_corpus, self.max_rows, lid)
            )

    def _facts(self, texts: Texts, sample: Sample) -> Record:
        return {
            "kind": "sample",
            "corpus": f"{self.corpus} ({', '.join(self.splits)})",
            "text": f"chunks of {self.chunk} tokens",
            "n_tokens": int(texts.count_V.sum()),
            "n_rows": len(sample.type_N),
            "n_types": len(sample.token_of),
            "n_neighbors": self.n_neighbors,
            "k_max": self.k_max,
            "cut": self.cut,
            "silhouette_rows": self.silhouette_rows,
        }
