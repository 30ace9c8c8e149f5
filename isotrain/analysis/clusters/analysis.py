"""Embeddings of the clusters analysis, and S_inter, S_intra, clusters, LID and maps of a layer.

N embeddings, D dimensions, n of a cluster, K clusters, R directions, M of a sample, C chunks, T
tokens of a chunk, V token ids.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from isotrain.analysis.clusters.show import PLOTS, TABLES
from isotrain.analysis.data_sets import RUNNING, TEXTS, Corpus, Split, read_corpus
from isotrain.analysis.encode import CHUNK, Spans, Tokens, encode_rows, tokenise
from isotrain.analysis.jackknife import anisotropy
from isotrain.analysis.show import principal_map
from isotrain.analysis.types import Analysis, Cell, Found, Part, Record, Subject, analysis
from isotrain.geometry.clusters import centre_rows, choose_clusters, silhouette_values
from isotrain.geometry.cosine import mean_pairwise_cosine
from isotrain.geometry.groups import check_groups, hashed_order, sample_groups
from isotrain.metrics.lid import lid_estimate
from isotrain.metrics.self_similarity import self_similarity
from isotrain.runs.record import CannotRunError
from isotrain.tasks.data.sources import Source, load_split
from isotrain.tasks.text import UNKNOWN

N_TOLD = 6  # tokens that are named of a cluster
SAME = 1e-4  # of its length: closer embeddings are equal up to rounding


class Texts(NamedTuple):
    """Sampled chunks or sentences as token ids, with a mask of measurable tokens."""

    ids: Sequence[Sequence[int]]
    special: Sequence[Sequence[int]] | None  # 1 = CLS, SEP; None: there are none
    n_of: int  # chunks or sentences that they were drawn from
    n_left: int  # tokens after the last whole chunk, or truncated sentences
    count_V: np.ndarray  # occurrences of each token id in all of the corpus


class Sample(NamedTuple):
    """Embeddings of every layer, in sampling order."""

    layers: Sequence[int]
    averaged: Sequence[int]  # layers that a mean over layers is of
    rows: Callable[[int], Tensor]  # of a layer, [N, D] float32
    type_N: Tensor  # number of the type (token id) of each row
    token_of: Mapping[int, str]  # how each type reads
    frequency_of: Mapping[int, int]  # occurrences of each type in all of the text
    facts: Mapping[str, Cell]  # what it was drawn from, for the record


def read_texts(
    subject: Subject, corpus: str, splits: Sequence[str], form: str, chunk: int, max_tokens: int
) -> Texts:
    """Drawn `chunks` of `chunk` tokens without CLS and SEP, or `sentences`, up to `max_tokens`."""
    source, tokenizer = subject.source, subject.encoder.tokenizer
    unknown = tokenizer.unk_token or UNKNOWN
    if form == "sentences" and corpus != "ptb":  # which has a sentence a line
        return _drawn_sentences(subject, read_corpus(source, corpus, splits, unknown), max_tokens)
    found = [row for split in splits for row in load_split(source, RUNNING[corpus], split)]
    stripped = (str(row["text"]).strip() for row in found)
    lines = [line.replace(UNKNOWN, unknown) for line in stripped if line]
    if form == "sentences":
        return _drawn_sentences(subject, list(dict.fromkeys(lines)), max_tokens)
    chunks_CT, n_left, count_V = cut_chunks(tokenizer, lines, chunk)
    at = hashed_order(len(chunks_CT), subject.seed)[: max(1, max_tokens // chunk)].numpy()
    return Texts([*chunks_CT[at]], None, len(chunks_CT), n_left, count_V)


def _drawn_sentences(subject: Subject, sentences: Sequence[str], max_tokens: int) -> Texts:
    """Tokenise and count all sentences in blocks; keep the ids of sampled ones."""
    ids: list[list[int]] = []
    special: list[list[int]] = []
    tokenizer = subject.encoder.tokenizer
    count_V = np.zeros(len(tokenizer), dtype=np.int64)
    n_cut, left, is_full = 0, max_tokens, False
    order = hashed_order(len(sentences), subject.seed).tolist()
    for start in range(0, len(order), CHUNK):
        some = [sentences[i] for i in order[start : start + CHUNK]]
        tokens = tokenise(tokenizer, some, subject.max_length)
        n_cut += tokens.n_cut
        found, marks = (np.concatenate([*map(np.asarray, x)]) for x in (tokens.ids, tokens.special))
        count_V += np.bincount(found[marks == 0].astype(np.int64), minlength=len(count_V))
        for own, own_special in zip(tokens.ids, tokens.special, strict=True):
            is_full = is_full or bool(ids and len(own) > left)
            if not is_full:
                ids.append(own)
                special.append(own_special)
                left -= len(own)
    return Texts(ids, special, len(sentences), n_cut, count_V)


def cut_chunks(
    tokenizer: Any, lines: Sequence[str], chunk: int
) -> tuple[np.ndarray, int, np.ndarray]:
    """Chunks `[C, T]` of the joined tokens of lines, the tokens left over, and counts `[V]`.

    Each line is tokenised as if after a space, so that its first word has its usual type. Cai et
    al. 2021, as in their released code.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> chunks, n_left, count = cut_chunks(build_tiny(8, 1, 1).tokenizer, ["a dog", "a b ."], 2)
    >>> chunks.shape, n_left, count.sum()
    ((2, 2), 1, np.int64(5))
    """
    parts = [np.zeros(0, dtype=np.int64)]
    for start in range(0, len(lines), CHUNK):
        some = [f" {line}" for line in lines[start : start + CHUNK]]
        found = tokenizer(some, add_special_tokens=False, verbose=False)["input_ids"]
        parts.append(np.array([token for ids in found for token in ids], dtype=np.int64))
    stream = np.concatenate(parts)
    n_chunks, n_left = divmod(len(stream), chunk)
    if n_chunks == 0:
        raise ValueError(
            f"analysis.chunk={chunk} is more than the {len(stream)} tokens of the text"
        )
    chunks_CT = stream[: n_chunks * chunk].reshape(n_chunks, chunk)
    return chunks_CT, n_left, np.bincount(stream, minlength=len(tokenizer))


def sample_encoder(subject: Subject, texts: Texts, max_rows: int) -> Sample:
    """Up to `max_rows` tokens of the texts, sampled by hashing positions with the seed.

    Neither special tokens nor the unknown one. An encoder without blocks gives a type the same
    embedding everywhere, so there each type is drawn once.
    """
    encoder, tokenizer = subject.encoder, subject.encoder.tokenizer
    length = [len(ids) for ids in texts.ids]
    token = np.concatenate([np.asarray(ids, dtype=np.int64) for ids in texts.ids])
    place = np.repeat(np.arange(len(texts.ids)), length)
    position = np.concatenate([np.arange(n) for n in length])
    allowed = token != (-1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id)
    if texts.special is not None:
        allowed &= np.concatenate([np.asarray(marks) for marks in texts.special]) == 0
    order = hashed_order(len(token), ~subject.seed).numpy()
    order = order[allowed[order]]
    if encoder.n_blocks == 0:
        order = order[np.sort(np.unique(token[order], return_index=True)[1])]
    order = order[:max_rows]
    spans = Spans(place[order], position[order], position[order] + 1)
    ids, segments = [[*map(int, own)] for own in texts.ids], [[0] * n for n in length]
    tokens = Tokens.none()._replace(ids=ids, segments=segments)
    types = np.unique(token[order]).tolist()
    layers = range(encoder.n_blocks + 1)
    return Sample(
        layers,
        layers[1:] or layers,
        lambda layer: torch.from_numpy(
            np.array(encode_rows(subject, "clusters", tokens, spans)[layer])
        ),
        torch.from_numpy(token[order]),
        {v: text_of(tokenizer, v) for v in types},
        {v: int(texts.count_V[v]) for v in types},
        {
            "n_texts": len(np.unique(place[order])),
            "n_texts_of": texts.n_of,
            "n_tokens": int(texts.count_V.sum()),
            "n_left": texts.n_left,
            "n_rows": len(order),
            "n_types": len(types),
        },
    )


def open_vectors(file: str, tokens: str) -> tuple[list[str], np.ndarray]:
    """Tokens of a text file, one a line, and their vectors `[L, N, D]` of a .npy file."""
    array: np.ndarray = np.load(Path(file).expanduser(), mmap_mode="r", allow_pickle=False)
    array_LND = array if array.ndim == 3 else array[None]
    text = Path(tokens).expanduser().read_bytes().decode("utf-8").replace("\r\n", "\n")
    names = text.removesuffix("\n").split("\n")
    if len(names) != array_LND.shape[1]:
        raise ValueError(
            f"{tokens} must have a line for each of the {array_LND.shape[1]} vectors of {file}, "
            f"got {len(names)} lines"
        )
    return names, array_LND


def sample_vectors(file: str, tokens: str, max_rows: int, seed: int) -> Sample:
    """Up to `max_rows` tokens of precomputed embeddings, sampled by hashing; types are texts."""
    every, array_LND = open_vectors(file, tokens)
    number_of = {token: number for number, token in enumerate(dict.fromkeys(every))}
    type_of, names = np.array([number_of[token] for token in every]), [*number_of]
    at_N = hashed_order(len(every), seed)[:max_rows].numpy()
    types, count_V = np.unique(type_of[at_N]).tolist(), np.bincount(type_of)

    def rows(layer: int) -> Tensor:
        x_ND = np.asarray(array_LND[layer][at_N], dtype=np.float32)
        if not np.isfinite(x_ND).all():
            raise ValueError(f"vectors must be finite, and some of {file} are not")
        return torch.from_numpy(x_ND)

    return Sample(
        range(len(array_LND)),
        range(len(array_LND)),
        rows,
        torch.from_numpy(type_of[at_N]),
        {v: names[v] for v in types},
        {v: int(count_V[v]) for v in types},
        {"n_tokens": len(every), "n_rows": len(at_N), "n_types": len(types)},
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
    along_N = x_ND.double() @ direction_D  # rows that are the same lie side by side on it
    order_N = torch.from_numpy(np.lexsort((along_N.numpy(), type_N.numpy())))
    sorted_ND = x_ND[order_N]
    apart_N = (sorted_ND[1:] - sorted_ND[:-1]).norm(dim=1)
    same_N = (apart_N <= SAME * sorted_ND[1:].norm(dim=1)) & (type_N[order_N].diff() == 0)
    # The first drawn of each run of equal rows stays, whatever rounding made of their order.
    run_N = torch.cat([torch.zeros(1, dtype=torch.long), (~same_N).long().cumsum(dim=0)])
    first_R = torch.full((int(run_N[-1]) + 1,), len(x_ND))
    return first_R.scatter_reduce(0, run_N, order_N, "amin").sort().values


def measure_layer(
    sample: Sample, layer: int, n_map: int, rule: tuple[int, float, int], seed: int
) -> Found:
    """S_inter and S_intra of a layer, its clusters, and a map of `n_map` embeddings (none if 0).

    `rule`: k_max, cut and n_silhouette of `clusters_by_silhouette`.
    """
    x_ND, type_N = _distinct(sample, layer)
    found = clusters_by_silhouette(x_ND, *rule, seed)
    x_ND = x_ND.double()
    forms = {
        "": [(x_ND, type_N)],
        "_centred": centred_parts(x_ND, type_N, torch.zeros_like(found.assignment_N)),
        "_clustered": centred_parts(x_ND, type_N, found.assignment_N),
    }
    record: dict[str, Any] = {
        "kind": "layer",
        "layer": layer,
        "n_rows": len(x_ND),
        "n_repeated": len(sample.type_N) - len(x_ND),
        "n_types": len(set(type_N.tolist())),
        "k": found.k,
        "best_k": found.best_k,
        "silhouette": found.silhouette,
        "n_smallest": int(found.assignment_N.bincount().min()),
    }
    for form, parts in forms.items():
        own = cosines(parts, seed)
        for name, over in (("s_inter", own.inter), ("s_intra", own.intra)):
            record |= {f"{name}{form}": over.value, f"{name}{form}_error": over.error}
            if form == "_clustered":
                record |= {
                    f"{name}_by_rows": over.by_rows,
                    f"{name}_by_rows_error": over.by_rows_error,
                    f"{name}_without_error": over.n_without_error,
                }
    arrays = {}
    if n_map:
        map_N3, share_3 = principal_map(x_ND)
        record["map_variance"] = float(share_3.sum())
        types = type_N[:n_map].tolist()
        arrays = {
            f"layer-{layer}/map": map_N3[:n_map].float().numpy(),
            f"layer-{layer}/cluster": found.assignment_N[:n_map].short().numpy(),
            f"layer-{layer}/frequency": np.array([sample.frequency_of[t] for t in types]),
            f"layer-{layer}/symbol": np.array([is_symbol(sample.token_of[t]) for t in types]),
        }
    told = [_cluster(k, found, type_N, sample, layer) for k in range(found.k) if found.k > 1]
    return Found([record, *told], arrays)


def measure_lid(sample: Sample, n_neighbors: int, max_queries: int | None, seed: int) -> Found:
    """LID of each layer, and its mean over the layers of `averaged`.

    The error of the mean is the mean of the errors, an upper bound: errors of layers correlate.
    """
    records: list[dict[str, Any]] = []
    for layer in sample.layers:
        own = dimensions(_distinct(sample, layer)[0], n_neighbors, max_queries, seed)
        records.append({"kind": "lid", "layer": layer, **own})
    averaged = [record for record in records if record["layer"] in sample.averaged]
    ends = dict.fromkeys((sample.averaged[0], sample.averaged[-1]))
    mean: dict[str, Any] = {
        "kind": "lid mean",
        "n_layers": len(averaged),
        "of_layers": " to ".join(map(str, ends)),
    }
    for name in ("lid", "lid_squared", "lid_cosine", "lid_cosine_squared"):
        for key in (name, f"{name}_error"):
            values = [record[key] for record in averaged]
            mean[key] = None if None in values else sum(values) / len(values)
    return Found([*records, mean])


def _distinct(sample: Sample, layer: int) -> tuple[Tensor, Tensor]:
    x_ND = sample.rows(layer)
    at_N = distinct_rows(x_ND, sample.type_N)
    return x_ND[at_N], sample.type_N[at_N]


def _cluster(cluster: int, found: Clustering, type_N: Tensor, sample: Sample, layer: int) -> Record:
    """Size and content of a cluster."""
    types = type_N[found.assignment_N == cluster].tolist()
    symbols = sum(is_symbol(sample.token_of[t]) for t in types)
    frequent: Mapping[int, int] = dict(Counter(types).most_common(N_TOLD))
    return {
        "kind": "cluster",
        "layer": layer,
        "cluster": cluster,
        "n": len(types),
        "share": len(types) / len(type_N),
        "symbols": symbols / len(types),
        "n_types": len(set(types)),
        "median_frequency": float(np.median([sample.frequency_of[t] for t in types])),
        "tokens": " ".join(sample.token_of[t] for t in frequent),
    }


class Clustering(NamedTuple):
    """Clusters 0..k−1 in descending order of size, and how they were chosen."""

    assignment_N: Tensor
    k: int  # 1 where the silhouette is below the cut
    best_k: int  # of the best silhouette, whatever that is
    silhouette: float | None  # of best_k; None where there are too few rows


class OverParts(NamedTuple):
    """A value over parts of a cloud; None if undefined."""

    value: float | None = None  # unweighted mean over parts
    error: float | None = None
    by_rows: float | None = None  # mean over parts, weighted by their rows
    by_rows_error: float | None = None
    n_without_error: int = 0  # parts that both errors leave out, since they have too few types


class Cosines(NamedTuple):
    """S_inter and S_intra over parts, with standard errors over types."""

    inter: OverParts
    intra: OverParts


def clusters_by_silhouette(
    x_ND: Tensor, k_max: int, cut: float, n_silhouette: int, seed: int
) -> Clustering:
    """Clusters of `choose_clusters`, with the silhouette of `n_silhouette` sampled embeddings.

    >>> x = torch.tensor([[0.0], [0.1], [9.0], [9.1], [9.2]])
    >>> found = clusters_by_silhouette(x, 4, 0.1, 100, 0)
    >>> found.assignment_N.tolist(), found.k
    ([1, 1, 0, 0, 0], 2)
    """
    everything = torch.zeros(len(x_ND), dtype=torch.long)
    found = choose_clusters(x_ND, k_max, -1.0, n_silhouette, seed)
    sample_M = hashed_order(len(x_ND), seed)[:n_silhouette]
    label_M = found.assignment_N[sample_M]
    if not 2 <= len(torch.unique(label_M)) < len(label_M):
        return Clustering(everything, 1, 1, None)
    silhouette = float(silhouette_values(x_ND[sample_M], label_M).mean())
    if silhouette < cut:
        return Clustering(everything, 1, found.n_clusters, silhouette)
    by_size_K = found.assignment_N.bincount().argsort(descending=True, stable=True)
    rank_K = by_size_K.argsort()
    k = found.n_clusters
    return Clustering(rank_K[found.assignment_N], k, k, silhouette)


def cosines(parts: Iterable[tuple[Tensor, Tensor]], seed: int) -> Cosines:
    """S_inter and S_intra over parts (embeddings, types) of a cloud.

    The values of one part are those of the metrics. Published is the unweighted mean over parts;
    weighted by size, small parts hardly count. Errors are over types, of S_inter by jackknife;
    over K parts √(Σ e²)/K. Parts without two types are left out of S_inter, those without two
    embeddings of a type out of S_intra.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> found = cosines([(x, torch.tensor([4, 4, 5]))], seed=0)
    >>> found.inter.value, found.intra.value
    (0.0, 1.0)
    """
    inter: list[_Part] = []
    intra: list[_Part] = []
    for x_nD, type_n in parts:
        groups = check_groups(x_nD, type_n)
        if len(groups.id_G) > 1:
            drawn_GD = x_nD[sample_groups(groups, groups.count_G > 0, 1, seed)[:, 0]]
            error = math.nan
            if len(drawn_GD) > 2:
                error = float(anisotropy(drawn_GD.double(), torch.arange(len(drawn_GD))).error)
            inter.append(_Part(float(mean_pairwise_cosine(drawn_GD)), error, len(x_nD)))
        if int(groups.count_G.max()) > 1:
            own = self_similarity(x_nD, type_n, min_count=2)
            error = float(own.get("standard_error", math.nan))
            intra.append(_Part(float(own["value"]), error, len(x_nD)))
    return Cosines(_over_parts(inter), _over_parts(intra))


def centred_parts(
    x_ND: Tensor, type_N: Tensor, assignment_N: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """Centred embeddings of each cluster, and their types."""
    members = [assignment_N == k for k in range(int(assignment_N.max()) + 1)]
    return [(centre_rows(x_ND[at_N]), type_N[at_N]) for at_N in members]


def dimensions(
    x_ND: Tensor, n_neighbors: int, max_queries: int | None, seed: int
) -> dict[str, float | int | None]:
    """LID of a layer with Euclidean distances and chords √(2(1 − cos)), each plain and squared.

    For squared distances it is exactly half. None unless there are more embeddings than
    neighbours.
    """
    found: dict[str, float | int | None] = {"n_rows": len(x_ND)}
    distances: tuple[Literal["euclidean", "cosine"], ...] = ("euclidean", "cosine")
    for distance, name in zip(distances, ("lid", "lid_cosine"), strict=True):
        value = error = None
        if len(x_ND) > n_neighbors:
            own = lid_estimate(x_ND, n_neighbors, distance, max_queries=max_queries, seed=seed)
            value, error = float(own["value"]), float(own["standard_error"])
            found["n_queries"] = int(own["n_queries"])
        found[name], found[f"{name}_error"] = value, error
        found[f"{name}_squared"] = None if value is None else value / 2
        found[f"{name}_squared_error"] = None if error is None else error / 2
    return found


class _Part(NamedTuple):
    value: float
    error: float  # NaN where there are too few types for one
    n_rows: int


def _over_parts(found: Sequence[_Part]) -> OverParts:
    if not found:
        return OverParts()
    n_without = sum(not math.isfinite(part.error) for part in found)
    plain, by_rows = (
        _weighted(found, weights) for weights in ([1] * len(found), [part.n_rows for part in found])
    )
    return OverParts(*plain, *by_rows, n_without)


def _weighted(found: Sequence[_Part], weights: Sequence[int]) -> tuple[float, float | None]:
    """Weighted mean and its error, over the parts with a value."""
    shares = [weight / sum(weights) for weight in weights]
    value = sum(w * part.value for w, part in zip(shares, found, strict=True))
    errors = [w * part.error for w, part in zip(shares, found, strict=True)]
    known = [error for error in errors if math.isfinite(error)]
    return value, math.hypot(*known) if known else None


@analysis
class Clusters(Analysis):
    """S_inter and S_intra raw, centred and inside clusters; k by silhouette; LID; maps.

    A type is a token id of the tokenizer (of `vectors`: a text). Tokens are drawn by hashing their
    positions with the seed, without CLS, SEP, pads and the unknown token; equal embeddings of a
    type count once. The arguments are the keys of `conf/analysis/clusters.yaml`.
    """

    name = "clusters"
    question = "Which clusters and low-dimensional shapes do the tokens of each layer form?"

    TABLES, PLOTS = TABLES, PLOTS

    corpus: Corpus | Literal["ptb"] = "wikitext-2"
    splits: Sequence[Split] = ("train",)
    text: Literal["chunks", "sentences"] = "chunks"
    chunk: Annotated[int, Field(ge=1)] = 512
    max_tokens: Annotated[int, Field(ge=1)] = 200_000
    max_rows: Annotated[int, Field(ge=3)] = 20_000
    k_max: Annotated[int, Field(ge=2)] = 15
    cut: Annotated[float, Field(ge=-1, le=1)] = 0.1
    silhouette_rows: Annotated[int, Field(ge=3)] = 2000
    n_neighbors: Annotated[int, Field(ge=2)] = 100
    lid_queries: Annotated[int | None, Field(ge=1)] = 5000
    map_rows: Annotated[int, Field(ge=1, le=10_000)] = 3000
    vectors: str | None = None
    tokens: str | None = None

    def __post_init__(self) -> None:
        """Validate the combinations."""
        if self.text == "chunks" and self.corpus not in RUNNING:
            raise ValueError(
                f"analysis.text=chunks needs running text, {' or '.join(RUNNING)}, got "
                f"{self.corpus}; set analysis.text=sentences"
            )
        if (self.vectors is None) != (self.tokens is None):
            raise ValueError("analysis.vectors and analysis.tokens belong together; set both")

    @property
    def instead(self) -> str | None:
        """File stem of `vectors`; None without such a file."""
        return None if self.vectors is None else Path(self.vectors).stem

    def data_sets(self, source: Source) -> Sequence[Any]:
        """The corpus; empty if `vectors` replaces it."""
        if self.vectors is not None:
            return []
        return [RUNNING[self.corpus] if self.corpus in RUNNING else TEXTS[self.corpus].data_set]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """The sample, each layer, and the LID of all layers."""
        sample = cache(lambda: self._sample(subject))  # tokenised once, if it is needed at all
        if self.vectors is not None:
            layers = sample().layers
        else:
            most = subject.encoder.max_positions
            if self.text == "chunks" and most and self.chunk > most:
                raise CannotRunError(
                    f"analysis.chunk must be at most {most}, the positions of this encoder, got "
                    f"{self.chunk}; set analysis.chunk={most}"
                )
            layers = range(subject.encoder.n_blocks + 1)
        drawn = layers[0], layers[len(layers) // 2], layers[-1]
        yield Part("sample", lambda: Found([self._facts(sample())]))
        for layer in layers:
            yield Part(f"layer-{layer}", partial(self._layer, subject, sample, layer, drawn))
        lid = self.n_neighbors, self.lid_queries, subject.seed
        yield Part("lid", lambda: measure_lid(sample(), *lid))

    def _sample(self, subject: Subject) -> Sample:
        if self.vectors is not None:
            return sample_vectors(self.vectors, str(self.tokens), self.max_rows, subject.seed)
        subject.tell(f"tokenising {self.corpus}")
        texts = read_texts(
            subject, self.corpus, self.splits, self.text, self.chunk, self.max_tokens
        )
        return sample_encoder(subject, texts, self.max_rows)

    def _facts(self, sample: Sample) -> Record:
        if self.vectors is not None:
            corpus, text = Path(self.vectors).name, "vectors that were given; no encoder was used"
        else:
            corpus = f"{self.corpus} ({', '.join(self.splits)})"
            text = f"chunks of {self.chunk} tokens" if self.text == "chunks" else "sentences"
        settings = {"n_neighbors": self.n_neighbors, "k_max": self.k_max, "cut": self.cut}
        settings["silhouette_rows"] = self.silhouette_rows
        return {"kind": "sample", "corpus": corpus, "text": text, **sample.facts, **settings}

    def _layer(
        self, subject: Subject, sample: Callable[[], Sample], layer: int, drawn: Sequence[int]
    ) -> Found:
        subject.tell(f"clusters of layer {layer}")
        rule = self.k_max, self.cut, self.silhouette_rows
        n_map = self.map_rows if layer in drawn else 0
        return measure_layer(sample(), layer, n_map, rule, subject.seed)
