"""Examples of a task in one format: sampled units, classified units, and their texts.

E examples (sampled), N rows (classified), J vectors per row, V vectors, C classes.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from isotrain.analysis.data_sets import TEXTS
from isotrain.geometry.groups import hashed_order
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
    n_columns = 0
    for number, line in enumerate(file.read_bytes().decode("utf-8-sig").split("\n"), start=1):
        columns = line.split()
        if not columns or columns[0] == "-DOCSTART-":
            sentences.append(Tagged([], []))
            continue
        n_columns = n_columns or len(columns)
        if len(columns) != n_columns or n_columns == 1 or not TAG.fullmatch(columns[-1]):
            raise ValueError(
                f"{file}:{number}: a line must have a word, as many columns as the first one, and "
                f"a tag O, B-kind or I-kind, got {line.strip()[:40]!r}; write other schemes as BIO"
            )
        sentences[-1].words.append(columns[0])
        sentences[-1].tags.append(columns[-1])
    if not (found := [sentence for sentence in sentences if sentence.words]):
        raise ValueError(f"{file} has no sentence: lines of words with their tags")
    return found


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
    Label (entailment, neutral or contradiction). A ValueError for another file.
    """
    table = pd.read_csv(
        file, sep="\t", dtype=str, keep_default_na=False, quoting=3, encoding="utf-8-sig"
    )
    if lacking := [name for name in (*CATEGORIES, *SIDES, "Label") if name not in table]:
        raise ValueError(f"{file} lacks the columns {', '.join(lacking)}, between tabs")
    if table.empty or len(odd := table[~table["Label"].isin(SNLI.classes)]):
        got = "no row" if table.empty else f"row {odd.index[0] + 1}: {odd['Label'].iloc[0]!r}"
        raise ValueError(f"{file}: every Label must be one of {', '.join(SNLI.classes)}, got {got}")
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
        if not rows:
            raise ValueError(f"{task}/{split} has no row with a label")
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
