"""Examples of a task in one format, their frozen features, and the scores of heads on them.

E examples (sampled), N rows (classified), J vectors of a row, V vectors, D dimensions, F features,
C classes, S seeds, R resamples, P vectors of predictions.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, islice, pairwise, repeat, takewhile
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.lib.stride_tricks import sliding_window_view
from torch import Tensor
from torch.nn.functional import embedding_bag

from isotrain.analysis.annotated import chunked, word_characters
from isotrain.analysis.data_sets import TEXTS
from isotrain.analysis.encode import Spans, Tokens, encode_rows, overlapping, tokenise
from isotrain.analysis.probe import best_penalty, features
from isotrain.analysis.types import Record, Subject
from isotrain.encoders.static import TableEncoder
from isotrain.geometry.groups import hashed_order
from isotrain.results.row_bootstrap import Floats, Score, matthews, row_interval
from isotrain.tasks.data.sources import HIDDEN, STEMS, Source, load_split
from isotrain.tasks.nli_pairs import DATA as SNLI
from isotrain.types import Row

WORD = re.compile(r"\w+")
TAG = re.compile(r"O|[BI]-\S+")
NOWHERE = -1  # index of a missing vector: the last one, which is 0
HELD_EVERY = 5  # one example in five of each class selects the penalty
CATEGORIES = ("Lexical Semantics", "Predicate-Argument Structure", "Logic", "Knowledge")
SIDES = {"Premise": "sentence1", "Hypothesis": "sentence2"}


class Tagged(NamedTuple):
    """A tagged sentence."""

    words: list[str]
    tags: list[str]


def read_conll(file: Path) -> list[Tagged]:
    """The sentences of a file.

    A line is a word, its columns and at last its tag (`O`, `B-kind` or `I-kind`); a blank line
    ends a sentence, and lines of `-DOCSTART-` are skipped. A ValueError names the first bad line.
    """
    sentences = [Tagged([], [])]
    for number, line in enumerate(file.read_text("utf-8-sig").split("\n"), start=1):
        columns = line.split()
        if not columns or columns[0] == "-DOCSTART-":
            sentences.append(Tagged([], []))
        elif len(columns) == 1 or not TAG.fullmatch(columns[-1]):
            raise ValueError(
                f"{file}:{number}: a line must end with a tag O, B-kind or I-kind, got "
                f"{line.strip()[:40]!r}; write other schemes as BIO"
            )
        else:
            sentences[-1].words.append(columns[0])
            sentences[-1].tags.append(columns[-1])
    return [sentence for sentence in sentences if sentence.words]


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """The entities (kind, start, stop) of the tags of a sentence; `stop` is excluded.

    One begins at `B-kind`, and at an `I-kind` that continues none of its kind; so BIO and IOB1
    are read alike, and so are the odd tags that a model predicts. Tjong Kim Sang and De Meulder
    2003 score this way.

    >>> sorted(entities(["I-PER", "I-PER", "B-PER", "O", "I-LOC"]))
    [('LOC', 4, 5), ('PER', 0, 2), ('PER', 2, 3)]
    """
    marks = [tag.partition("-")[::2] for tag in ["O", *tags, "O"]]
    pairs = enumerate(pairwise(marks))
    cuts = [k for k, (last, (mark, kind)) in pairs if mark != "I" or kind != last[1]]
    spans = ((marks[start + 1][1], start, stop) for start, stop in pairwise(cuts))
    return {(kind, start, stop) for kind, start, stop in spans if kind}


class Diagnostic(NamedTuple):
    """Pairs as examples of SNLI, and which of them each category has; one may be in several."""

    rows: list[Row]
    category: dict[str, np.ndarray]  # name -> mask [N]; `all` has every pair


def read_diagnostic(file: Path) -> Diagnostic:
    """The pairs of a file with tabs between its columns, named in its first line.

    It has the columns of `CATEGORIES` (empty where a pair is not of one), Premise, Hypothesis and
    Label (entailment, neutral or contradiction).
    """
    table = pd.read_csv(
        file, sep="\t", dtype=str, keep_default_na=False, quoting=3, encoding="utf-8-sig"
    )
    label = table["Label"].map(SNLI.classes.index)
    rows = table[[*SIDES]].rename(columns=SIDES).assign(label=label).to_dict("records")
    masks = {name: (table[name].str.strip() != "").to_numpy() for name in CATEGORIES}
    return Diagnostic(rows, {"all": np.ones(len(rows), dtype=bool), **masks})


class Examples(NamedTuple):
    """Training examples, followed by those that heads are scored on.

    A row of a sentence or a pair is an example by itself; the rows of a tagged sentence are its
    words.
    """

    texts: list[str]
    span_V: list[tuple[int, int, int]]  # of each vector: its text, and characters start to stop
    vector_NJ: np.ndarray
    label_N: np.ndarray  # class; −1 = one that no training row has
    rows_E: list[np.ndarray]
    stratum_E: np.ndarray  # classes of examples, for stratified sampling
    group_E: np.ndarray  # examples of one group (a premise) are held out together
    words_E: list[list[str]]  # in lower case
    classes: tuple[str, ...]
    n_train: int  # examples
    n_scored: int  # number of examples after those; the rest is only predicted
    gold: list[list[str]] | None  # tags of the words of the scored examples, where they are tagged

    def rows_of(self, index_E: np.ndarray) -> np.ndarray:
        """Rows of some examples, in order."""
        return np.concatenate([self.rows_E[e] for e in index_E])


def sentence_examples(
    source: Source,
    task: str,
    max_train: int,
    max_evaluated: int,
    seed: int,
    more: Sequence[Row] = (),
) -> Examples:
    """Examples of a data set of one sentence or of pairs, at most so many, by `nested_order`.

    Those without gold are left out; `more` of the same form are only predicted.
    """
    data_set, fields = TEXTS[task]
    split_rows = []
    for split, limit in (("train", max_train), ("dev", max_evaluated)):
        rows = [r for r in load_split(source, data_set, split) if r["label"] != HIDDEN]
        order = nested_order(np.array([r["label"] for r in rows]), seed)
        split_rows.append([rows[i] for i in order[:limit]])
    all_rows = [*split_rows[0], *split_rows[1], *more]
    number, texts = pd.factorize(np.array([row[f] for row in all_rows for f in fields], object))
    vector_NJ, label_N = (
        number.reshape(-1, len(fields)),
        np.array([row["label"] for row in all_rows]),
    )
    return Examples(
        texts=texts.tolist(),
        span_V=[(i, 0, len(text)) for i, text in enumerate(texts)],
        vector_NJ=vector_NJ,
        label_N=label_N,
        rows_E=[*np.arange(len(all_rows))[:, None]],
        stratum_E=label_N,
        group_E=vector_NJ[:, 0],
        words_E=[WORD.findall(" ".join(row[f] for f in fields).lower()) for row in all_rows],
        classes=tuple(data_set.classes),
        n_train=len(split_rows[0]),
        n_scored=len(split_rows[1]),
        gold=None,
    )


def of_folder(folder: Path) -> list[list[Tagged]]:
    """Train and dev of a folder in CoNLL's columns: the first of train, or dev, val, valid."""
    splits = []
    for split in ("train", "dev"):
        paths = (folder / (stem + end) for stem in STEMS[split] for end in (".txt", ".conll"))
        splits.append(read_conll(next(filter(Path.is_file, paths), folder / f"{split}.txt")))
    return splits


def of_chunks(source: Source) -> list[list[Tagged]]:
    """Train and test of CoNLL-2000, tagged with chunks; each sentence once, shared ones in test."""
    train, test = (
        {tuple(words): Tagged(words, tags) for words, tags in chunked(source, split)}
        for split in ("train", "test")
    )
    return [[tagged for words, tagged in train.items() if words not in test], [*test.values()]]


def tagged_examples(
    splits: Sequence[Sequence[Tagged]], window: int, max_train: int, max_evaluated: int, seed: int
) -> Examples:
    """Sentences to train on, and to score, at most so many, by `nested_order`.

    Words are classified, with the vectors of `window` words on either side. A sentence is drawn by
    the kind of its first entity.
    """
    samples: list[list[Tagged]] = []
    for split, limit in zip(splits, (max_train, max_evaluated), strict=True):
        kinds = [_first_kind(sentence.tags) for sentence in split]
        order = nested_order(np.unique(kinds, return_inverse=True)[1], seed)[:limit]
        samples.append([split[i] for i in order])
    train, evaluated = samples
    classes = tuple(sorted({tag for sentence in train for tag in sentence.tags}))
    sentences = [*train, *evaluated]
    texts = [" ".join(sentence.words) for sentence in sentences]
    span_V = [(e, *at) for e, s in enumerate(sentences) for at in word_characters(s.words)]
    text_V = np.array([e for e, *_ in span_V])
    padded = np.pad(text_V, window, constant_values=NOWHERE)
    text_NJ = sliding_window_view(padded, 2 * window + 1)  # of the neighbours
    vector_NJ = np.arange(len(text_V))[:, None] + np.arange(-window, window + 1)
    return Examples(
        texts=texts,
        span_V=span_V,
        vector_NJ=np.where(text_NJ == text_V[:, None], vector_NJ, NOWHERE),
        label_N=pd.Index(classes).get_indexer([tag for s in sentences for tag in s.tags]),
        rows_E=np.split(np.arange(len(text_V)), np.flatnonzero(np.diff(text_V)) + 1),
        stratum_E=np.unique([_first_kind(s.tags) for s in sentences], return_inverse=True)[1],
        group_E=np.arange(len(sentences)),
        words_E=[[word.lower() for word in sentence.words] for sentence in sentences],
        classes=classes,
        n_train=len(train),
        n_scored=len(evaluated),
        gold=[sentence.tags for sentence in evaluated],
    )


def unseen_shares(
    examples: Examples, order_E: Sequence[int] | np.ndarray, sizes: Sequence[int]
) -> np.ndarray:
    """Share `[sizes, scored]` of words of each scored example that are unseen in training.

    Training has the first n examples of an order, for each n of `sizes`.
    """
    rank_of: dict[str, int] = {}  # word -> rank of the first example that has it
    for k, e in reversed([*enumerate(order_E)]):
        rank_of |= dict.fromkeys(examples.words_E[e], k)
    scored_words = examples.words_E[examples.n_train :][: examples.n_scored]
    ranks = [np.array([rank_of.get(w, len(order_E)) for w in words]) for words in scored_words]
    return np.array([[(rank >= n).mean() if len(rank) else 0.0 for rank in ranks] for n in sizes])


def _first_kind(tags: Sequence[str]) -> str:
    return min(entities(tags), key=lambda entity: entity[1], default=("", 0, 0))[0]


def nested_order(class_N: np.ndarray, seed: int) -> np.ndarray:
    """The positions 0..N−1 in an order whose first n are a draw of n in the shares of the classes.

    So draws are nested. The j-th of the n_c examples of a class, in random order, is given the
    place (j + ½)/n_c, and all are sorted by place. Of the first n about n·n_c/N are of class c: at
    most (1 + C·n_c/N)/2 more or fewer.

    >>> classes = np.array([0, 0, 0, 0, 1, 1])
    >>> classes[nested_order(classes, seed=0)].tolist()
    [0, 1, 0, 0, 1, 0]
    """
    order_N, quantile_N = hashed_order(len(class_N), seed).numpy(), np.empty(len(class_N))
    by_class = pd.Series(order_N).groupby(class_N[order_N])
    quantile_N[order_N] = (by_class.cumcount() + 0.5) / by_class.transform("size")
    return np.lexsort((class_N, quantile_N))


def held_out(class_n: np.ndarray, group_n: np.ndarray) -> np.ndarray:
    """Mask of examples held out to select the penalty: the 3rd, 8th, 13th ... of each class.

    Examples of a group, of the class of its first, stay together, unless all are one group. At
    least one is held out: the last, where no class has three.

    >>> held_out(np.array([0, 1, 0, 0, 1, 0]), np.arange(6)).tolist()
    [False, False, False, True, False, False]
    >>> held_out(np.array([0, 1, 0, 0, 1, 0]), np.array([0, 1, 2, 3, 4, 3])).tolist()
    [False, False, False, True, False, True]
    """
    first_g = np.sort(np.unique(group_n, return_index=True)[1])
    if len(first_g) == 1:
        group_n = first_g = np.arange(len(class_n))
    number_g = pd.Series(first_g).groupby(class_n[first_g]).cumcount()
    held_g = (number_g % HELD_EVERY == HELD_EVERY // 2).to_numpy(copy=True)
    held_g[-1] |= not held_g.any()
    return np.isin(group_n, group_n[first_g[held_g]])


def sizes(n: int, smallest: int, factor: float) -> list[int]:
    """Sizes from the smallest on, each `factor` times the last, and n, which has none too near.

    That is, none above n/√factor.

    >>> sizes(100, 16, 2), sizes(80, 16, 2), sizes(10, 16, 2)
    ([16, 32, 64, 100], [16, 32, 80], [10])
    """
    grid = accumulate(repeat(factor), initial=float(smallest), func=lambda size, by: size * by)
    smaller_sizes = takewhile(lambda size: size <= n / factor**0.5, map(round, grid))
    return [*dict.fromkeys(smaller_sizes), n]


PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001)  # λ of λ/2·‖W‖², on standardised features


class Encoded(NamedTuple):
    """Vectors of examples from one encoder, those of each row, and facts about encoding."""

    vector_VD: Tensor  # the last one is 0
    index_NJ: Tensor
    facts: Record

    def features(self, row_n: Sequence[int] | np.ndarray) -> Floats:
        """Features `[n, F]` of some rows, in float32."""
        return features(self.vector_VD, self.index_NJ[row_n]).numpy()


def encoded(subject: Subject, examples: Examples) -> Encoded:
    """Vectors at the last layer: means over tokens; for word vectors, over known tokens.

    `n_absent`: vectors without such a token, which are 0; `unknown_share`: of the tokens that are
    not special; `n_cut`: texts longer than `max_length`.
    """
    encoder, unknown = subject.encoder, subject.encoder.tokenizer.unk_token_id
    tokens = tokenise(encoder.tokenizer, examples.texts, subject.max_length)
    spans, index_V = spans_of(tokens, examples)
    n_absent = len(examples.span_V) - len(spans)
    if isinstance(encoder, TableEncoder):
        span_ids = [tokens.ids[i][start:stop] for i, start, stop in zip(*spans, strict=True)]
        first_N = torch.tensor([0, *map(len, span_ids)])[:-1].cumsum(dim=0)
        flat_ids, table_VD = (
            torch.tensor([*chain(*span_ids)]),
            encoder.embeddings.get_parameter("weight"),
        )
        bags = {"mode": "mean", "padding_idx": unknown}
        mean_MD = embedding_bag(flat_ids.long(), table_VD.cpu(), first_N, **bags)
        n_absent += sum({*ids} == {unknown} for ids in span_ids)
    else:
        mean_MD = torch.from_numpy(encode_rows(subject, tokens, spans, [encoder.n_blocks])[0])
    texts = (zip(*pair, strict=True) for pair in zip(tokens.ids, tokens.special, strict=True))
    ordinary = [token for text in texts for token, is_special in text if not is_special]
    facts: Record = {
        "unknown_share": sum(token == unknown for token in ordinary) / max(1, len(ordinary)),
        "n_absent": n_absent,
        "n_cut": tokens.n_cut,
    }
    vector_VD = torch.cat([mean_MD, torch.zeros(1, encoder.width)])
    return Encoded(vector_VD, torch.from_numpy(index_V[examples.vector_NJ]), facts)


def spans_of(tokens: Tokens, examples: Examples) -> tuple[Spans, np.ndarray]:
    """The tokens that reach into each vector's characters; the place `[V + 1]` of its span, or −1.

    Of a whole text that `max_length` cut, the tokens that are left. The last place is that of
    `NOWHERE`.
    """
    spans = []
    for i, begin, end in examples.span_V:
        is_text = (begin, end) == (0, len(examples.texts[i]))
        left = min(end, int(tokens.offsets[i].max(initial=0))) if is_text else end
        spans.append(overlapping(tokens, i, begin, left))
    has_span = np.array([span is not None for span in [*spans, None]])
    index_V = np.where(has_span, has_span.cumsum() - 1, NOWHERE)
    return Spans(*np.array([*filter(None, spans)], dtype=np.int64).reshape(-1, 3).T), index_V


class Tally(NamedTuple):
    """Contribution `[E]` of each scored example to a score Σ gain/Σ weight: accuracy, or F1."""

    gain_E: np.ndarray
    weight_E: np.ndarray

    def score(self, mask_E: np.ndarray) -> float | None:
        """The score of some examples; None without any."""
        score = self.gain_E[mask_E].sum() / max(1.0, self.weight_E[mask_E].sum())
        return float(score) if mask_E.any() else None


def measured(
    encoded_by: Callable[[int], Encoded],
    examples: Examples,
    sizes: list[int],
    seeds: list[int],
    diagnostic: Diagnostic | None,
) -> Iterator[Record]:
    """A record per seed and size, and per category for the heads of the largest size.

    Then the means over seeds with their intervals. `encoded_by` gives the vectors of a seed's
    number.
    """
    label_N, n_classes = examples.label_N, len(examples.classes)
    eval_rows = np.arange(examples.rows_E[examples.n_train][0], len(label_N))  # rows after training
    tallies: dict[int, list[Tally]] = {size: [] for size in sizes}
    extra_predictions: list[np.ndarray] = []  # after the scored examples, at the largest size
    for number, seed in enumerate(seeds):
        vectors = encoded_by(number)
        order = nested_order(examples.stratum_E[: examples.n_train], seed)
        unseen = unseen_shares(examples, order, sizes)
        for size, unseen_E in zip(sizes, unseen, strict=True):
            held_n = held_out(examples.stratum_E[order[:size]], examples.group_E[order[:size]])
            fit_rows, held_rows = (
                examples.rows_of(order[:size][mask_n]) for mask_n in (~held_n, held_n)
            )
            train, dev = (
                (vectors.features(fit_rows), label_N[fit_rows]),
                (vectors.features(held_rows), label_N[held_rows]),
            )
            head = best_penalty(*train, *dev, PENALTIES, n_classes)
            class_n = head.probe.predict(vectors.features(eval_rows))
            tallies[size].append(tally(examples, class_n))
            scores = {**by_unseen(tallies[size][-1], unseen_E), "penalty": head.penalty}
            yield {"kind": "score", "size": size, "seed": number, **scores}
        extra_predictions.append(class_n[examples.n_scored :])
    for size, pairs in tallies.items():
        yield {"kind": "mean", "size": size, **mean_ratio(*map(np.stack, zip(*pairs, strict=True)))}
    if diagnostic is not None:
        yield from _categories(diagnostic, np.stack(extra_predictions), sizes[-1])


def tally(examples: Examples, class_n: np.ndarray) -> Tally:
    """Contribution of scored examples to the score; classes are predicted for rows after train."""
    if examples.gold is None:
        right_E = (class_n[: examples.n_scored] == scored_labels(examples)).astype(float)
        return Tally(right_E, np.ones_like(right_E))
    tags = iter([examples.classes[c] for c in class_n])
    pairs = [(entities(g), entities([*islice(tags, len(g))])) for g in examples.gold]
    terms = [(2.0 * len(gold & pred), float(len(gold) + len(pred))) for gold, pred in pairs]
    return Tally(*np.array(terms).T)


def scored_labels(examples: Examples) -> np.ndarray:
    """Classes of the scored examples, where each is a row."""
    return examples.label_N[examples.n_train :][: examples.n_scored]


def by_unseen(tally: Tally, unseen_E: np.ndarray) -> Record:
    """The score, and those of the examples up to and above the median share of unseen words."""
    many_E = unseen_E > np.median(unseen_E)
    return {
        "score": tally.score(np.ones_like(many_E)),
        "n_scored": len(many_E),
        "unseen_share": float(unseen_E.mean()),
        "score_few_unseen": tally.score(~many_E),
        "n_few_unseen": int((~many_E).sum()),
        "score_many_unseen": tally.score(many_E),
        "n_many_unseen": int(many_E.sum()),
    }


def _categories(diagnostic: Diagnostic, class_SN: np.ndarray, size: int) -> Iterator[Record]:
    """Correlation of each category: per seed, then the mean."""
    gold_N = np.array([row["label"] for row in diagnostic.rows], dtype=float)
    means: list[Record] = []
    for category, mask_N in diagnostic.category.items():
        facts: Record = {"size": size, "category": category, "n": int(mask_N.sum())}
        gold, pred = gold_N[mask_N], class_SN[:, mask_N].astype(float)
        ones = np.ones((1, len(gold)))
        scores = matthews(gold, pred, ones)[0].tolist() if len(gold) else [None] * len(pred)
        for number, score in enumerate(scores):
            yield {"kind": "diagnostic", **facts, "seed": number, "correlation": score}
        if len(gold):  # against predictions of one class, whose correlation is 0
            mean = mean_score(pred, np.zeros_like(pred), gold, matthews, lowest=-1.0)
            means.append({"kind": "category", **facts, **mean})
    yield from means


def mean_score(
    prediction_SN: Floats, baseline_SN: Floats, label_N: Floats, score: Score, lowest: float = 0.0
) -> Record:
    """Mean, standard deviation over seeds and 95 % interval of a score, clipped to `lowest` … 1.

    The interval is that of `row_interval`, of the difference to a baseline whose score is 0 on any
    examples. None where nothing varies.
    """
    n_seeds, n = prediction_SN.shape
    score_S = score(label_N, prediction_SN, np.ones((1, n)))[0].tolist()
    low = high = None
    if n > 1:
        _, low, high, *_ = row_interval(prediction_SN, baseline_SN, label_N, score)
    return {
        "n_seeds": n_seeds,
        "mean": fmean(score_S),
        "sd": stdev(score_S) if n_seeds > 1 else None,
        "low": None if low is None else max(low, lowest),
        "high": None if high is None else min(high, 1.0),
    }


def mean_ratio(gain_SN: Floats, weight_SN: Floats) -> Record:
    """`mean_score` of scores Σ gain/Σ weight, as accuracy and F1 are.

    >>> right = np.array([[1.0, 1.0, 0.0, 1.0]])
    >>> found = mean_ratio(right, np.ones_like(right))
    >>> found["mean"], found["high"]
    (0.75, 1.0)
    """
    gain_HN, weight_HN = (np.pad(x_SN, ((0, 1), (0, 0))) for x_SN in (gain_SN, weight_SN))

    def ratio(label_N: Floats, head_PN: Floats, count_RN: Floats) -> Floats:
        head_P = head_PN[:, 0].astype(int)  # a head's number stands for its predictions
        gain_RP = count_RN @ gain_HN[head_P].T
        ratio_RP: Floats = gain_RP / np.maximum(count_RN @ weight_HN[head_P].T, 1.0)
        return ratio_RP

    n_seeds, n = gain_SN.shape
    number_SN = np.tile(np.arange(float(n_seeds))[:, None], n)
    return mean_score(number_SN, np.full((n_seeds, n), float(n_seeds)), np.zeros(n), ratio)
