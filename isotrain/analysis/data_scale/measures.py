"""Examples of a task in one format, their frozen features, and the scores of heads on them.

E examples (sampled), N rows (classified), J vectors of a row, V vectors, D dimensions, F features,
C classes, S seeds, R resamples, P vectors of predictions.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from isotrain.analysis.data_sets import TEXTS
from isotrain.analysis.encode import Spans, Tokens, encode_rows, tokenise
from isotrain.analysis.probe import best_penalty
from isotrain.analysis.types import Record, Subject
from isotrain.encoders.static import TableEncoder
from isotrain.geometry.groups import hashed_order
from isotrain.model.heads import pair_features
from isotrain.reporting.row_bootstrap import Floats, Score, row_interval
from isotrain.tasks.data.sources import HIDDEN, STEMS, Source, load_split
from isotrain.tasks.snli import DATA as SNLI
from isotrain.types import Row

WORD = re.compile(r"\w+")
TAG = re.compile(r"O|[BI]-\S+")
NOWHERE = -1  # a vector that a row does not have: 0 in its features
HELD_EVERY = 5  # of a class: one example in five chooses the penalty
CATEGORIES = ("Lexical Semantics", "Predicate-Argument Structure", "Logic", "Knowledge")
SIDES = {"Premise": "sentence1", "Hypothesis": "sentence2"}


class Tagged(NamedTuple):
    """A tagged sentence."""

    words: list[str]
    tags: list[str]


def conll_file(folder: Path, split: str) -> Path | None:
    """The file of a split: the first of train, or dev, val, valid, or test, as .txt or .conll."""
    names = (folder / (stem + ending) for stem in STEMS[split] for ending in (".txt", ".conll"))
    return next(filter(Path.is_file, names), None)


def read_conll(file: Path) -> list[Tagged]:
    """The sentences of a file.

    A line is a word, its columns and at last its tag (`O`, `B-kind` or `I-kind`); a blank line
    ends a sentence, and lines of `-DOCSTART-` are skipped. A ValueError names the first bad line.
    """
    sentences = [Tagged([], [])]
    for number, line in enumerate(file.read_bytes().decode("utf-8-sig").split("\n"), start=1):
        columns = line.split()
        if not columns or columns[0] == "-DOCSTART-":
            sentences.append(Tagged([], []))
            continue
        if len(columns) == 1 or not TAG.fullmatch(columns[-1]):
            raise ValueError(
                f"{file}:{number}: a line must end with a tag O, B-kind or I-kind, got "
                f"{line.strip()[:40]!r}; write other schemes as BIO"
            )
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
    found = set()
    start, kind = 0, ""
    for place, tag in enumerate([*tags, "O"]):
        mark, _, own = tag.partition("-")
        if kind and (mark != "I" or own != kind):
            found.add((kind, start, place))
            kind = ""
        if own and not kind:
            start, kind = place, own
    return found


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
    words. Vector v is that of the characters start to stop of a text.
    """

    texts: list[str]
    text_V: np.ndarray
    start_V: np.ndarray
    stop_V: np.ndarray
    vector_NJ: np.ndarray
    label_N: np.ndarray  # class; −1 = one that no training row has
    example_N: np.ndarray  # of each row, rising
    stratum_E: np.ndarray  # classes of examples, which keep their shares when some are drawn
    group_E: np.ndarray  # examples of one group (a premise) are held out together
    words_E: list[list[str]]  # in lower case
    classes: tuple[str, ...]
    n_train: int  # examples
    n_scored: int  # number of examples after those; the rest is only predicted
    is_pair: bool
    gold_E: list[list[str]] | None  # tags of the words, where they are tagged

    @property
    def scored_E(self) -> np.ndarray:
        """Indices of the scored examples."""
        return np.arange(self.n_train, self.n_train + self.n_scored)

    def rows_of(self, chosen_E: np.ndarray) -> np.ndarray:
        """Rows of some examples, in order."""
        start_E = np.searchsorted(self.example_N, chosen_E)
        stop_E = np.searchsorted(self.example_N, chosen_E, side="right")
        return np.concatenate([np.arange(a, b) for a, b in zip(start_E, stop_E, strict=True)])


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
    kept = []
    for split, most in (("train", max_train), ("dev", max_evaluated)):
        rows = [r for r in load_split(source, data_set, split) if r["label"] != HIDDEN]
        order = nested_order(np.array([r["label"] for r in rows]), seed)
        kept.append([rows[i] for i in order[:most]])
    train, evaluated = kept
    every = [*train, *evaluated, *more]
    number_of: dict[str, int] = {}
    vector_NJ = np.array(
        [[number_of.setdefault(row[f], len(number_of)) for f in fields] for row in every]
    )
    texts = list(number_of)
    label_N = np.array([row["label"] for row in every])
    return Examples(
        texts=texts,
        text_V=np.arange(len(texts)),
        start_V=np.zeros(len(texts), dtype=np.int64),
        stop_V=np.array([len(text) for text in texts]),
        vector_NJ=vector_NJ,
        label_N=label_N,
        example_N=np.arange(len(every)),
        stratum_E=label_N,
        group_E=vector_NJ[:, 0],
        words_E=[WORD.findall(" ".join(row[f] for f in fields).lower()) for row in every],
        classes=data_set.classes,
        n_train=len(train),
        n_scored=len(evaluated),
        is_pair=len(fields) == 2,
        gold_E=None,
    )


def tagged_examples(
    folder: Path, window: int, max_train: int, max_evaluated: int, seed: int
) -> Examples:
    """Sentences of a folder in CoNLL's columns, at most so many, by `nested_order`.

    Words are classified, with the vectors of `window` words on either side. A sentence is drawn by
    the kind of its first entity.
    """
    kept: list[list[Tagged]] = []
    kinds: list[str] = []
    for split, most in (("train", max_train), ("dev", max_evaluated)):
        found = read_conll(conll_file(folder, split) or folder / f"{split}.txt")
        first = [_first_kind(sentence.tags) for sentence in found]
        order = nested_order(np.unique(first, return_inverse=True)[1], seed)[:most]
        kept.append([found[i] for i in order])
        kinds += [first[i] for i in order]
    train, evaluated = kept
    classes = tuple(sorted({tag for sentence in train for tag in sentence.tags}))
    number_of: Mapping[str, int] = {tag: number for number, tag in enumerate(classes)}
    sentences = [*train, *evaluated]
    length_E = np.array([len(sentence.words) for sentence in sentences])
    length_V = np.array([len(word) for sentence in sentences for word in sentence.words])
    text_V = np.repeat(np.arange(len(sentences)), length_E)
    first_E = np.cumsum(length_E) - length_E
    stop_V = np.cumsum(length_V + 1) - 1  # in one text of all words, a space after each
    stop_V -= np.repeat((stop_V - length_V)[first_E], length_E)
    vector_NJ = np.arange(len(text_V))[:, None] + np.arange(-window, window + 1)
    inside_NJ = (vector_NJ >= 0) & (vector_NJ < len(text_V))
    inside_NJ &= text_V[vector_NJ.clip(0, len(text_V) - 1)] == text_V[:, None]
    return Examples(
        texts=[" ".join(sentence.words) for sentence in sentences],
        text_V=text_V,
        start_V=stop_V - length_V,
        stop_V=stop_V,
        vector_NJ=np.where(inside_NJ, vector_NJ, NOWHERE),
        label_N=np.array([number_of.get(tag, -1) for s in sentences for tag in s.tags]),
        example_N=text_V,
        stratum_E=np.unique(kinds, return_inverse=True)[1],
        group_E=np.arange(len(sentences)),
        words_E=[[word.lower() for word in sentence.words] for sentence in sentences],
        classes=classes,
        n_train=len(train),
        n_scored=len(evaluated),
        is_pair=False,
        gold_E=[sentence.tags for sentence in sentences],
    )


def unseen_shares(
    examples: Examples, order_E: Sequence[int] | np.ndarray, sizes: Sequence[int]
) -> np.ndarray:
    """Share `[sizes, scored]` of words of each scored example that are unseen in training.

    Training has the first n examples of an order, for each n of `sizes`.
    """
    place_of: dict[str, int] = {}  # of the first example that has a word
    for place, e in enumerate(order_E):
        for word in examples.words_E[e]:
            place_of.setdefault(word, place)
    found = np.zeros((len(sizes), examples.n_scored))
    for column, e in enumerate(examples.scored_E):
        if words := examples.words_E[e]:
            places = np.array([place_of.get(word, len(order_E)) for word in words])
            found[:, column] = [(places >= n).mean() for n in sizes]
    return found


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
    drawn_N = hashed_order(len(class_N), seed).numpy()
    place_N = np.empty(len(class_N))
    for one in np.unique(class_N):
        own_n = drawn_N[class_N[drawn_N] == one]
        place_N[own_n] = (np.arange(len(own_n)) + 0.5) / len(own_n)
    return np.lexsort((class_N, place_N))


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
    held_g = np.zeros(len(first_g), dtype=bool)
    for one in np.unique(class_n[first_g]):
        (own,) = np.nonzero(class_n[first_g] == one)
        held_g[own[HELD_EVERY // 2 :: HELD_EVERY]] = True
    if not held_g.any():
        held_g[-1] = True
    return np.isin(group_n, group_n[first_g[held_g]])


def sizes(n: int, smallest: int, factor: float) -> list[int]:
    """Sizes from the smallest on, each `factor` times the last, and n, which has none too near.

    That is, none above n/√factor.

    >>> sizes(100, 16, 2), sizes(80, 16, 2), sizes(10, 16, 2)
    ([16, 32, 64, 100], [16, 32, 80], [10])
    """
    found, size = [], float(smallest)
    while round(size) <= n / factor**0.5:
        found.append(round(size))
        size *= factor
    return [*dict.fromkeys(found), n]


PENALTIES = (10.0, 1.0, 0.1, 0.01, 0.001)  # λ of λ/2·‖W‖², on standardised features


class Features:
    """Features: one vector, several concatenated, or (u, v, |u − v|, u·v) of a pair."""

    def __init__(self, vector_VD: Tensor, vector_NJ: Tensor, is_pair: bool) -> None:
        self._vector_VD, self._vector_NJ, self._is_pair = vector_VD, vector_NJ, is_pair
        self.width = vector_VD.shape[1] * (4 if is_pair else vector_NJ.shape[1])

    def __call__(self, row_B: Tensor) -> Tensor:
        """`[B, F]`, in float32."""
        vector_BJ = self._vector_NJ[row_B]
        x_BJD = self._vector_VD[vector_BJ.clamp_min(0)]
        x_BJD[vector_BJ == NOWHERE] = 0.0
        if self._is_pair:
            return pair_features(*x_BJD.unbind(dim=1))
        return x_BJD.flatten(1)


class Encoded(NamedTuple):
    """Features of examples from one encoder, and facts about encoding."""

    features: Features
    unknown_share: float  # of the tokens that are not special
    n_cut: int  # texts longer than `max_length`
    n_absent: int  # vectors without a token, of word vectors without a known one: 0


def encoded(subject: Subject, examples: Examples, layer: int) -> Encoded:
    """Features of all examples at a layer: means over tokens; for word vectors, known tokens."""
    encoder = subject.encoder
    tokens = tokenise(encoder.tokenizer, examples.texts, subject.max_length)
    spans, place_V = spans_of(tokens, examples)
    n_absent = int((place_V == NOWHERE).sum())
    if isinstance(encoder, TableEncoder):
        vector_VD, n_unknown = _of_table(encoder, tokens, spans)
        n_absent += n_unknown
    else:
        vector_VD = torch.from_numpy(encode_rows(subject, tokens, spans, [layer])[0])
    place_NJ = np.where(examples.vector_NJ == NOWHERE, NOWHERE, place_V[examples.vector_NJ])
    ids, marks = (np.concatenate([*map(np.asarray, own)]) for own in (tokens.ids, tokens.special))
    ordinary, id_of_unknown = ids[marks == 0], encoder.tokenizer.unk_token_id
    unknown = 0.0 if id_of_unknown is None else (ordinary == id_of_unknown).sum().item()
    unknown /= max(1, len(ordinary))
    features = Features(vector_VD, torch.from_numpy(place_NJ), examples.is_pair)
    return Encoded(features, unknown, tokens.n_cut, n_absent)


def spans_of(tokens: Tokens, examples: Examples) -> tuple[Spans, np.ndarray]:
    """The tokens that reach into each vector's characters; the place `[V]` of its span, or −1."""
    own_T = [[t for t, special in enumerate(marks) if not special] for marks in tokens.special]
    both = list(zip(tokens.offsets, own_T, strict=True))
    starts = [[offsets[t][0] for t in own] for offsets, own in both]
    stops = [[offsets[t][1] for t in own] for offsets, own in both]
    found: list[tuple[int, int, int]] = []
    place_V = np.full(len(examples.text_V), NOWHERE)
    characters = zip(examples.text_V, examples.start_V, examples.stop_V, strict=True)
    for number, (text, start, stop) in enumerate(characters):
        first = bisect_right(stops[text], start)
        last = bisect_left(starts[text], stop)
        if first < last:
            place_V[number] = len(found)
            found.append((text, own_T[text][first], own_T[text][last - 1] + 1))
    at = np.array(found, dtype=np.int64).reshape(-1, 3)
    return Spans(at[:, 0], at[:, 1], at[:, 2]), place_V


def _of_table(encoder: TableEncoder, tokens: Tokens, spans: Spans) -> tuple[Tensor, int]:
    """The mean vector of the known tokens of each span, and how many spans have none (0)."""
    unknown = encoder.tokenizer.unk_token_id
    at = zip(spans.sentence_N, spans.start_N, spans.stop_N, strict=True)
    ids = [tokens.ids[i][start:stop] for i, start, stop in at]
    first_N = torch.tensor([0, *map(len, ids)])[:-1].cumsum(dim=0)
    table_VD = encoder.embeddings.get_parameter("weight").cpu()
    flat = torch.tensor([token for own in ids for token in own], dtype=torch.long)
    mean_ND = embedding_bag(flat, table_VD, first_N, mode="mean", padding_idx=unknown)
    return mean_ND, sum(set(own) == {unknown} for own in ids)


class Tally(NamedTuple):
    """Contribution `[E]` of each scored example to a score Σ gain/Σ weight: accuracy, or F1."""

    gain_E: np.ndarray
    weight_E: np.ndarray

    def score(self, kept_E: np.ndarray) -> float | None:
        """The score of some examples; None without any."""
        if not kept_E.any():
            return None
        return float(self.gain_E[kept_E].sum() / max(1.0, self.weight_E[kept_E].sum()))


def measured(
    features_of: Callable[[int], Features],
    examples: Examples,
    sizes: list[int],
    seeds: list[int],
    diagnostic: Diagnostic | None,
) -> Iterator[Record]:
    """A record per seed and size, and per category for the heads of the largest size.

    Then the means over seeds with their intervals. `features_of` gives the features of a seed's
    number.
    """
    label_N = examples.label_N
    first = int(np.searchsorted(examples.example_N, examples.n_train))  # first row after training
    tallies: dict[int, list[Tally]] = {size: [] for size in sizes}
    of_more: list[np.ndarray] = []
    for number, seed in enumerate(seeds):
        features = features_of(number)
        order = nested_order(examples.stratum_E[: examples.n_train], seed)
        unseen = unseen_shares(examples, order, sizes)
        for size, unseen_E in zip(sizes, unseen, strict=True):
            chosen_E = order[:size]
            held_n = held_out(examples.stratum_E[chosen_E], examples.group_E[chosen_E])
            fit, held = (examples.rows_of(chosen_E[part]) for part in (~held_n, held_n))
            x_nF, held_mF = (features(torch.from_numpy(rows)).numpy() for rows in (fit, held))
            parts = x_nF, label_N[fit], held_mF, label_N[held]
            head = best_penalty(*parts, PENALTIES, len(examples.classes))
            class_n = head.probe.predict(features(torch.arange(first, len(label_N))).numpy())
            tallies[size].append(tally(examples, class_n))
            scores = by_unseen(tallies[size][-1], unseen_E)
            facts: Record = {"kind": "score", "size": size, "seed": number}
            yield {**facts, **scores, "penalty": head.penalty}
        if diagnostic is not None:
            of_more.append(class_n[examples.n_scored :])
    for size, own in tallies.items():
        gain_SE, weight_SE = (np.stack(one) for one in zip(*own, strict=True))
        yield {"kind": "mean", "size": size, **mean_ratio(gain_SE, weight_SE)}
    if diagnostic is not None:
        yield from _categories(diagnostic, np.stack(of_more), sizes[-1])


def tally(examples: Examples, class_n: np.ndarray) -> Tally:
    """Contribution of scored examples to the score; classes are predicted for rows after train."""
    first = np.searchsorted(examples.example_N, examples.n_train)
    if examples.gold_E is None:
        row_n = examples.rows_of(examples.scored_E)
        right_E = (class_n[row_n - first] == examples.label_N[row_n]).astype(float)
        return Tally(right_E, np.ones_like(right_E))
    found = []
    for e in examples.scored_E:
        rows = examples.rows_of(np.array([e])) - first
        gold = entities(examples.gold_E[e])
        own = entities([examples.classes[c] for c in class_n[rows]])
        found.append((2.0 * len(gold & own), float(len(gold) + len(own))))
    return Tally(*np.array(found).T)


def by_unseen(own: Tally, unseen_E: np.ndarray) -> Record:
    """The score, and those of the examples up to and above the median share of unseen words."""
    many_E = unseen_E > np.median(unseen_E)
    return {
        "score": own.score(np.ones_like(many_E)),
        "n_scored": len(many_E),
        "unseen_share": float(unseen_E.mean()),
        "score_few_unseen": own.score(~many_E),
        "n_few_unseen": int((~many_E).sum()),
        "score_many_unseen": own.score(many_E),
        "n_many_unseen": int(many_E.sum()),
    }


def majority(examples: Examples) -> float | None:
    """The share of the largest class among the scored examples; None for tags."""
    if examples.gold_E is not None:
        return None
    counts = np.bincount(examples.label_N[examples.rows_of(examples.scored_E)])
    return float(counts.max() / counts.sum())


def matthews(label_N: Floats, class_PN: Floats, count_RN: Floats) -> Floats:
    """Correlations `[R, P]` of predicted and true classes, in [−1, 1]: 0 is chance.

    R_K = (c·N − Σ_k p_k·t_k)/√((N² − Σ p_k²)(N² − Σ t_k²)), with c right of N rows, and of class k
    p_k predicted and t_k true, where row n counts count_RN[r, n] times; 0 where either side has
    one class only. Gorodkin 2004, equation 8; the score of the diagnostic set (R₃).

    >>> matthews(np.array([0, 1, 2, 2]), np.array([[0, 1, 2, 2]]), np.ones((1, 4))).tolist()
    [[1.0]]
    """
    n_R1 = count_RN.sum(axis=1, keepdims=True)
    covariance_RP = n_R1 * (count_RN @ (class_PN == label_N).T)
    true_R1, predicted_RP = n_R1**2, n_R1**2 + np.zeros_like(covariance_RP)
    for k in np.unique([*label_N, *class_PN.flat]):
        t_R1, p_RP = count_RN @ (label_N == k)[:, None], count_RN @ (class_PN == k).T
        covariance_RP -= t_R1 * p_RP
        true_R1 = true_R1 - t_R1**2
        predicted_RP -= p_RP**2
    spread_RP = np.sqrt(true_R1 * predicted_RP)
    found_RP: Floats = np.zeros_like(spread_RP)
    np.divide(covariance_RP, spread_RP, found_RP, where=spread_RP > 0)
    return found_RP


def _categories(diagnostic: Diagnostic, class_SN: np.ndarray, size: int) -> Iterator[Record]:
    """Correlation of each category: per seed, then the mean."""
    gold_N = np.array([row["label"] for row in diagnostic.rows], dtype=float)
    means: list[Record] = []
    for category, mask_N in diagnostic.category.items():
        facts: Record = {"size": size, "category": category, "n": int(mask_N.sum())}
        gold, own = gold_N[mask_N], class_SN[:, mask_N].astype(float)
        every = np.ones((1, len(gold)))
        scores = matthews(gold, own, every)[0].tolist() if len(gold) else [None] * len(own)
        for number, score in enumerate(scores):
            yield {"kind": "diagnostic", **facts, "seed": number, "correlation": score}
        if len(gold):
            nothing = np.zeros_like(own)  # one class, whose correlation is 0
            mean = mean_score(own, nothing, gold, matthews, lowest=-1.0)
            means.append({"kind": "category", **facts, **mean})
    yield from means


def mean_score(
    own_SN: Floats, nothing_SN: Floats, label_N: Floats, score: Score, lowest: float = 0.0
) -> Record:
    """Mean, standard deviation over seeds and 95 % interval of a score, clipped to `lowest` … 1.

    The interval is that of `row_interval`, of the difference to predictions `nothing`, whose score
    is 0 on any examples. None where nothing varies.
    """
    n_seeds, n = own_SN.shape
    score_S = score(label_N, own_SN, np.ones((1, n)))[0].tolist()
    low = high = None
    if n > 1:
        _, low, high, *_ = row_interval(own_SN, nothing_SN, label_N, score)
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
    nothing = np.zeros_like(gain_SN[:1])
    gain_HN = np.concatenate([gain_SN, nothing])
    weight_HN = np.concatenate([weight_SN, nothing])

    def ratio(label_N: Floats, head_PN: Floats, count_RN: Floats) -> Floats:
        head_P = head_PN[:, 0].astype(int)  # what is predicted is known by the head's number
        gain_RP = count_RN @ gain_HN[head_P].T
        found: Floats = gain_RP / np.maximum(count_RN @ weight_HN[head_P].T, 1.0)
        return found

    number_SN = np.ones_like(gain_SN) * np.arange(len(gain_SN))[:, None]
    last_SN = np.full_like(gain_SN, len(gain_SN))
    return mean_score(number_SN, last_SN, np.zeros(gain_SN.shape[1]), ratio)
