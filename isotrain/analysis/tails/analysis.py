"""Outlier dimensions and their origin; raw, clipped and whitened embeddings on WiC and STS.

L layers, N embeddings (tokens) or pairs, P pairs of a set, D dimensions, G sentences.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from isotrain.analysis.data_sets import (
    PLACES,
    TEST_SETS,
    TEXTS,
    Corpus,
    read_corpus,
    readable_sets,
    sts_pairs,
)
from isotrain.analysis.encode import (
    Sample,
    encode_rows,
    find_targets,
    subsample,
    tokenise,
    whole_sentences,
    wic_pairs,
)
from isotrain.analysis.jackknife import Estimate, anisotropy, mean_of, self_similarity
from isotrain.analysis.outliers import (
    CUT,
    NONE,
    TREATMENTS,
    Search,
    above,
    draw_tokens,
    find_tails,
    pair_cosines,
    treatments,
)
from isotrain.analysis.probe import spearman
from isotrain.analysis.tails.positions import position_records
from isotrain.analysis.tails.show import PLOTS, TABLES
from isotrain.analysis.types import Analysis, Cell, Part, PartResult, Record, Subject, analysis
from isotrain.encoders.base import Encoder
from isotrain.geometry.groups import check_groups, group_sums, hashed_order, large_groups
from isotrain.metrics.outlier_dims import outlier_dims
from isotrain.results.statistics import wilson
from isotrain.tasks import wic
from isotrain.tasks.data.sources import SPLITS, Source


def share_error(hit_N: Tensor, sentences_N: Tensor) -> float:
    """Standard error of the share of hits among embeddings, over sentences.

    √(Σ_g (h_g − n_g·p)²)/N, h_g the hits among the n_g embeddings of sentence g and p the share.

    >>> round(share_error(torch.tensor([1, 1, 0, 0]), torch.tensor([3, 3, 5, 5])), 4)
    0.3536
    """
    hit_N1 = hit_N.double()[:, None]
    groups = check_groups(hit_N1, sentences_N)
    hits_G, share = group_sums(hit_N1, groups)[:, 0], hit_N1.mean()
    spread = (hits_G - groups.count_G * share).square().sum()
    return float(spread.sqrt() / len(hit_N1))


def search_records(tails: Search) -> list[Record]:
    """One record per layer; over the layers above the embeddings, one per outlier.

    `layer` names the dimensions that most often hold a token's smallest and largest entry (ties
    count for the first one), the one with the most extreme mean, and the one that contributes most
    to the mean cosine. Errors of shares are over sentences, each with all its layers. Luo 2020.
    """
    sentence_N = tails.sample.sentence_N
    x_LND = [torch.from_numpy(x_ND) for x_ND in tails.rows_LND]
    at_2LN = torch.stack([torch.stack([x.argmin(dim=1), x.argmax(dim=1)]) for x in x_LND], dim=1)

    def share(name: str, at_LN: Tensor, i: int) -> dict[str, Cell]:
        hit_N = (at_LN == i).double().mean(dim=0)
        error = share_error(hit_N, sentence_N)
        return {f"{name}_share": float(hit_N.mean()), f"{name}_share_error": error}

    records: list[Record] = []
    for layer, (x_ND, score_D) in enumerate(zip(x_LND, tails.score_LD, strict=True)):
        min_dim, max_dim = (int(at_N.bincount().argmax()) for at_N in at_2LN[:, layer])
        mean_dim, cosine = int(score_D.abs().argmax()), outlier_dims(x_ND, n_top=1)
        records.append(
            {
                "kind": "layer",
                "layer": layer,
                "n_rows": len(x_ND),
                "n_sentences": len(torch.unique(sentence_N)),
                "minimum_dimension": min_dim,
                **share("minimum", at_2LN[0, layer, None], min_dim),
                "maximum_dimension": max_dim,
                **share("maximum", at_2LN[1, layer, None], max_dim),
                "mean_dimension": mean_dim,
                "mean_score": float(score_D[mean_dim]),
                "n_beyond": int((score_D.abs() > tails.threshold).sum()),
                "cosine_dimension": int(cosine["index_1"]),
                "cosine_share": float(cosine["share_1"]),
            }
        )
    score_LD = above(tails.score_LD)
    low_LN, high_LN = map(above, at_2LN)
    outliers = [
        {
            "kind": "outlier",
            "rank": rank,
            "dimension": i,
            "layers_beyond": int((score_LD[:, i].abs() > tails.threshold).sum()),
            "n_layers": len(score_LD),
            "mean_score": float(score_LD[:, i].mean()),
            **share("minimum", low_LN, i),
            **share("maximum", high_LN, i),
        }
        for rank, i in enumerate(tails.dims, start=1)
    ]
    return [*records, *outliers]


NORMS = ("LayerNorm", "RMSNorm")  # suffixes of norm classes in torch and transformers


def norm_records(encoder: Encoder, dims: Sequence[int]) -> list[Record]:
    """One record per norm of an encoder and dimension of `dims`: gain, bias and z-scores.

    Norms are found by their type. `place` is l − 1 + k/n for the k-th of the n norms of block l.
    Scores are `against_others`.
    """
    records: list[Record] = []
    for position, layer, name, norm in _norms(encoder):
        params = {"gain": norm.weight, "bias": getattr(norm, "bias", None)}
        for i in dims:
            cells: dict[str, Cell] = {}
            for key, value_D in params.items():
                if value_D is not None:
                    score = against_others(value_D.detach(), i, dims)
                    cells |= {key: float(value_D.detach()[i]), f"{key}_score": score}
            keys = {"layer": layer, "norm": name, "place": position, "dimension": i}
            records.append({"kind": "norm", **keys, **cells})
    return records


def table_records(encoder: Encoder, dims: Sequence[int]) -> list[Record]:
    """One record per embedding table of width D and dimension of `dims`.

    `size`: mean |entry| of the column, pad left out; `others`: mean of that over the dimensions
    not among `dims`; `score`: its z-score against them.
    """
    records: list[Record] = []
    for path, table in encoder.named_modules():
        if isinstance(table, nn.Embedding) and table.embedding_dim == encoder.width:
            token_ids = [v for v in range(table.num_embeddings) if v != table.padding_idx]
            size_D = table.weight.detach()[token_ids].double().abs().mean(dim=0)
            records += [
                {
                    "kind": "table",
                    "table": path.rpartition(".")[2],
                    "n_rows": len(token_ids),
                    "dimension": i,
                    "size": float(size_D[i]),
                    "others": float(_drop_dims(size_D, dims).mean()),
                    "score": against_others(size_D, i, dims),
                }
                for i in dims
            ]
    return records


def against_others(value_D: Tensor, i: int, dims: Sequence[int]) -> float | None:
    """(v_i − mean)/sd (divisor n − 1) over the dimensions that are neither i nor in `dims`.

    None where those are fewer than two or all equal.

    >>> against_others(torch.tensor([1.0, 2.0, 3.0, 9.0, 70.0]), 3, [4])
    7.0
    """
    value_D = value_D.double()
    rest = _drop_dims(value_D, [*dims, i])
    if len(rest) < 2 or not bool((spread := rest.std()) > 0):
        return None
    return float((value_D[i] - rest.mean()) / spread)


def _drop_dims(value_D: Tensor, dims: Sequence[int]) -> Tensor:
    return value_D[[i for i in range(len(value_D)) if i not in {*dims}]]


def _norms(encoder: Encoder) -> Iterator[tuple[float, int, str, Any]]:
    """Place, layer, name and norm, in the order of places; last those behind all blocks."""

    def norms_of(part: nn.Module) -> dict[str, nn.Module]:
        modules = {n: m for n, m in part.named_modules() if type(m).__name__.endswith(NORMS)}
        width = (encoder.width,)
        weights = {n: getattr(m, "weight", None) for n, m in modules.items()}  # OLMo's have none
        return {n: m for n, m in modules.items() if getattr(weights[n], "shape", None) == width}

    seen: list[nn.Module] = []
    for layer, part in enumerate([encoder.embeddings, *encoder.blocks]):
        norms = norms_of(part)
        seen += norms.values()
        for k, (name, norm) in enumerate(norms.items(), start=1):
            yield max(0.0, layer - 1 + k / len(norms)), layer, name or type(norm).__name__, norm
    for path, norm in norms_of(encoder).items():
        if not any(norm is module for module in seen):
            yield encoder.n_blocks + 0.5, encoder.n_blocks, path.rpartition(".")[2], norm


FIT = "fit"  # the half of train used to fit whitening
EVALUATED = ("dev", "test")


class Threshold(NamedTuple):
    """Predict "same sense" if cosine ≥ `value`; accuracy on the data used to select it."""

    value: float
    accuracy: float


def best_threshold(cosine_N: Tensor, same_N: Tensor) -> Threshold:
    """The threshold with the highest accuracy; the lowest of ties.

    Candidates are −1 (all the same sense), the midpoints of adjacent cosines, and one just above
    1 (none). Exact, by one sort.

    >>> best_threshold(torch.tensor([0.75, 0.25, 1.0, 0.0]), torch.tensor([1, 0, 1, 0]))
    Threshold(value=0.5, accuracy=1.0)
    """
    cosine_N, same_N = cosine_N.double(), same_N.bool()
    sorted_N = cosine_N.sort().values
    bounds = sorted_N.new_tensor([-1.0]), sorted_N.new_tensor([math.nextafter(1.0, 2.0)])
    value_K = torch.cat([bounds[0], (sorted_N[1:] + sorted_N[:-1]) / 2, bounds[1]])
    right_K = ((cosine_N >= value_K[:, None]) == same_N).sum(dim=1)
    k = int(right_K.argmax())
    return Threshold(float(value_K[k]), int(right_K[k]) / len(cosine_N))


def accuracy(cosine_N: Tensor, same_N: Tensor, threshold: float) -> float:
    """Accuracy of a threshold."""
    return float(((cosine_N.double() >= threshold).long() == same_N.long()).double().mean())


def wic_records(
    subject: Subject, dims: list[int], epsilon: float, most: int | None
) -> list[Record]:
    """WiC accuracy of each treatment and layer, and of each treatment's selected layer.

    Whitening is fitted on the targets of one half of train (`fit_half`); the other half selects
    threshold and layer. `optimistic_<split>`: with the threshold tuned on that split;
    `constant_true`: always predicting "same". `wic chosen`: the selected layer, and the best cell.
    """
    rows = {split: wic_pairs(subject.source, split, most, subject.seed) for split in SPLITS}
    examples = [row for split in SPLITS for row in rows[split]]
    targets = find_targets(examples, subject.encoder.tokenizer, subject.max_length)
    split_N = np.repeat(SPLITS, [len(ps) for ps in rows.values()]).astype(object)[targets.pair_N]
    same_N = torch.tensor([int(examples[k]["label"]) for k in targets.pair_N])
    train = np.flatnonzero(split_N == "train")
    if len(train) < 2:
        raise ValueError(
            f"{len(train)} pairs of WiC's train split keep both targets within "
            f"{subject.max_length} tokens, and two are needed; raise max_length"
        )
    is_fit = fit_half([str(examples[targets.pair_N[i]]["word"]) for i in train], subject.seed)
    split_N[train[is_fit]] = FIT
    target_LND = encode_rows(subject, targets.tokens, targets.spans)
    masks = {split: torch.from_numpy(split_N == split) for split in (FIT, *SPLITS)}
    cosines: dict[str, list[Tensor]] = {name: [] for name in TREATMENTS}  # of each layer
    for x_ND in target_LND:
        pair_N2D = torch.from_numpy(x_ND).reshape(-1, 2, x_ND.shape[1])
        maps = treatments(pair_N2D[masks[FIT]].flatten(0, 1), dims, epsilon)
        for name, treat in maps.items():
            cosines[name].append(pair_cosines(treat(pair_N2D[:, 0]), treat(pair_N2D[:, 1])))
    counts = {"n_fit": int(is_fit.sum()), "n_left_out": targets.n_left_out}
    records: list[Record] = []
    for name, cosine_LN in cosines.items():
        cells = [
            _treatment_record(name, n, x_N, same_N, masks, counts)
            for n, x_N in enumerate(cosine_LN)
        ]
        chosen = max(cells, key=lambda r: (r["train"], -int(r["layer"] or 0)))
        best = {k: max(float(r[k] or 0) for r in cells) for k in chosen if "optimistic" in k}
        records += [*cells, {**chosen, **best, "kind": "wic chosen"}]
    return records


def _treatment_record(
    name: str,
    layer: int,
    cosine_N: Tensor,
    same_N: Tensor,
    at: Mapping[str, Tensor],
    counts: Mapping[str, int],
) -> dict[str, Cell]:
    """The record of a treatment at a layer."""
    pairs = {split: (cosine_N[at_N], same_N[at_N]) for split, at_N in at.items() if at_N.any()}
    threshold, train = best_threshold(*pairs["train"])
    keys: Record = {"kind": "wic", "treatment": name, "layer": layer, "threshold": threshold}
    record: dict[str, Cell] = {**keys, "train": train, "n_train": len(pairs["train"][1]), **counts}
    for split in (s for s in EVALUATED if s in pairs):
        share, n = accuracy(*pairs[split], threshold), len(pairs[split][1])
        low, high = wilson(share, n)
        record |= {split: share, f"n_{split}": n, f"{split}_low": low, f"{split}_high": high}
        record[f"constant_true_{split}"] = float(pairs[split][1].double().mean())
        record[f"optimistic_{split}"] = best_threshold(*pairs[split]).accuracy
    return {**record, "n_dev": record.get("n_dev", 0)}  # the table needs it, even without dev pairs


def fit_half(words: Sequence[str], seed: int) -> np.ndarray:
    """Mask of the training pairs used to fit whitening, one half; sampled by hashing words.

    Whitening pushes the embeddings it was fitted on too far apart, so all pairs of a word are in
    one half, except for the word at the cut.

    >>> fit_half(["dog", "cat", "dog", "cat"], seed=0).tolist()
    [True, False, True, False]
    """
    vocabulary, word_N = np.unique(words, return_inverse=True)
    rank_W = hashed_order(len(vocabulary), seed).argsort().numpy()
    rank_N = hashed_order(len(words), seed).argsort().numpy()
    mask_N = np.zeros(len(words), dtype=bool)
    mask_N[np.lexsort((rank_N, rank_W[word_N]))[: len(words) // 2]] = True
    return mask_N


STS_FIT = "stsb"  # whitening is fitted on its train split


def sts_sets(source: Source) -> list[str]:
    """The STS sets of a source; empty if it lacks the set that whitening is fitted on.

    >>> from isotrain.tasks.data.demo_generator import DemoSource
    >>> sts_sets(DemoSource())
    ['stsb']
    """
    names = [name for name in TEST_SETS if not source.missing(PLACES[name].data_set)]
    return names if STS_FIT in names else []


def sts_records(
    subject: Subject, sets: Sequence[str], dims: list[int], epsilon: float, most: int | None
) -> list[Record]:
    """Spearman × 100 of cosine and gold score, for each set, treatment and layer.

    Sentences are means of all their tokens; `most` pairs of a test split are sampled. Whitening is
    fitted on the sentences of STS-B's train split that occur in no set.
    """
    test_pairs, reasons = readable_sets(subject.source, sets)
    records: list[Record] = [
        {"kind": "sts left out", "set": name, "why": why} for name, why in reasons.items()
    ]
    texts: dict[str, int] = {}
    pairs = {}
    for name, (sentences, *sides, gold_P) in test_pairs.items():
        idx = np.array(subsample(range(len(gold_P)), most, subject.seed))
        numbers = [[texts.setdefault(sentences[i], len(texts)) for i in s[idx]] for s in sides]
        pairs[name] = torch.tensor(numbers), gold_P[idx]
    train = sts_pairs(subject.source, PLACES[STS_FIT].data_set, "train").sentences
    order = hashed_order(len(train), subject.seed).tolist()
    fit = [train[i] for i in order if train[i] not in texts][: None if most is None else 2 * most]
    tokens = tokenise(subject.encoder.tokenizer, [*texts, *fit], subject.max_length)
    for layer, x_ND in enumerate(encode_rows(subject, tokens, whole_sentences(tokens))):
        scored_ND, fit_ND = torch.from_numpy(x_ND).tensor_split([len(texts)])
        for treatment, treat in treatments(fit_ND, dims, epsilon).items():
            treated_ND = treat(scored_ND)
            for name, ((first_P, second_P), gold_P) in pairs.items():
                cosine_P = pair_cosines(treated_ND[first_P], treated_ND[second_P])
                score = spearman(cosine_P.numpy(), gold_P)
                percent = (None if value is None else 100 * value for value in score)
                keys: Record = {"set": name, "treatment": treatment, "layer": layer}
                counts = {"n_pairs": len(gold_P), "n_fit": len(fit)}
                scores = dict(zip(("spearman", "low", "high"), percent, strict=True))
                records.append({"kind": "sts", **keys, **counts, **scores})
    return records


@analysis
class Tails(Analysis):
    """Outlier dimensions of every layer, their origin, and embeddings with them cut, or whitened.

    A dimension is an outlier where its entry of the mean vector lies more than `threshold`
    standard deviations (over the D entries) from their mean, in at least `layers_share` of the
    layers above the embeddings. Outliers are found, and whitening is fitted, on tokens of the
    train split. Tokens of dev, of other sentences, are measured: as they are, with outliers set to
    zero in every layer (the encoder is not run again), and whitened. So are the target words of
    WiC and the mean-pooled sentences of the STS sets that the source has. An encoder with a table
    of positions is run again with these zeroed, and shuffled. The arguments are the keys of
    `conf/analysis/tails.yaml`.
    """

    name = "tails"
    question = "Which dimensions dominate, where do they come from, and what does cutting them do?"

    TABLES, PLOTS = TABLES, PLOTS

    corpus: Corpus = "wikitext-2"
    max_rows: Annotated[int, Field(ge=100)] = 20_000
    threshold: Annotated[float, Field(gt=0)] = 3.0
    layers_share: Annotated[float, Field(gt=0, le=1)] = 0.5
    min_count: Annotated[int, Field(ge=2)] = 5
    epsilon: Annotated[float, Field(ge=0)] = 1e-6
    max_pairs: Annotated[int | None, Field(ge=10)] = None

    def data_sets(self, source: Source) -> Iterable[Any]:
        """The corpus, and the available ones of WiC and the STS sets."""
        sets = [TEXTS[self.corpus].data_set, *([] if source.missing(wic.DATA) else [wic.DATA])]
        return [*sets, *(PLACES[name].data_set for name in sts_sets(source))]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """The layers, origin and positions of outliers, and WiC and STS if the source has them."""
        source, encoder, options = subject.source, subject.encoder, (self.epsilon, self.max_pairs)
        search = cache(partial(self._search, subject))  # read and encoded once for all parts
        yield Part("layers", lambda: self._layers(subject, search()))
        origins = (norm_records, table_records)
        yield Part(
            "origin", lambda: PartResult([r for o in origins for r in o(encoder, search().dims)])
        )
        yield Part("positions", lambda: PartResult(position_records(subject, search())))
        if not source.missing(wic.DATA):
            yield Part("wic", lambda: PartResult(wic_records(subject, search().dims, *options)))
        if sets := sts_sets(source):
            yield Part(
                "sts", lambda: PartResult(sts_records(subject, sets, search().dims, *options))
            )

    def _sentences(self, subject: Subject, split: str) -> list[str]:
        unknown = subject.encoder.tokenizer.unk_token or "<unk>"
        return read_corpus(subject.source, self.corpus, [split], unknown)

    def _search(self, subject: Subject) -> Search:
        sentences = self._sentences(subject, "train")
        return find_tails(subject, sentences, self.max_rows, self.threshold, self.layers_share)

    def _layers(self, subject: Subject, tails: Search) -> PartResult:
        records = search_records(tails)
        train = {*self._sentences(subject, "train")}
        dev = [s for s in self._sentences(subject, "dev") if s not in train]
        sample = draw_tokens(subject, dev, self.max_rows)
        falls: list[Estimate] = []
        for layer, x_ND in enumerate(encode_rows(subject, sample.tokens, sample.spans)):
            maps = treatments(torch.from_numpy(tails.rows_LND[layer]), tails.dims, self.epsilon)
            cones: dict[str, Estimate] = {}
            for name, treat in maps.items():
                treated_ND = treat(torch.from_numpy(x_ND))
                cones[name] = anisotropy(treated_ND, sample.sentence_N)
                keys = {"kind": "treated", "treatment": name, "layer": layer}
                records.append({**keys, **self._measures(treated_ND, cones[name], sample)})
            falls.append(cones[NONE].less(cones[CUT]))
        falls = falls[1:] or falls
        counts = {"n_layers": len(falls), "n_dimensions": len(tails.dims)}
        fall = mean_of(falls).figures("anisotropy_fall")
        scores = {"scores": tails.score_LD.float().numpy()}
        return PartResult([*records, {"kind": "cut", **counts, **fall}], scores)

    def _measures(self, x_ND: Tensor, cone: Estimate, sample: Sample) -> Record:
        similarity = self_similarity(x_ND, sample.word_N, sample.sentence_N, self.min_count)
        frequent_G = large_groups(check_groups(x_ND, sample.word_N), self.min_count)
        return {
            "n_rows": len(x_ND),
            "n_sentences": len(torch.unique(sample.sentence_N)),
            **cone.figures("anisotropy"),
            **similarity.figures("self_similarity"),
            **similarity.less(cone).figures("self_similarity_adjusted"),
            "n_words": int(frequent_G.sum()),
        }
