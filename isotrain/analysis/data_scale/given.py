"""Files that are given: CoNLL's columns of tags, and the diagnostic set of GLUE.

N rows, R resamples, P vectors of predictions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from isotrain.reporting.row_bootstrap import Floats
from isotrain.tasks.data.sources import STEMS
from isotrain.tasks.snli import DATA
from isotrain.types import Row

ENDINGS = (".txt", ".conll")
TAG = re.compile(r"O|[BI]-\S+")
OUTSIDE = "O"


class Tagged(NamedTuple):
    """A sentence: words, and the tag of each."""

    words: list[str]
    tags: list[str]


class Entity(NamedTuple):
    """The words `start` to `stop` (excluded) are one of a kind."""

    kind: str
    start: int
    stop: int


def conll_file(folder: Path, split: str) -> Path | None:
    """The file of a split: the first of train, or dev, val, valid, or test, as .txt or .conll."""
    names = (folder / (stem + ending) for stem in STEMS[split] for ending in ENDINGS)
    return next(filter(Path.is_file, names), None)


def read_conll(file: Path) -> list[Tagged]:
    """The sentences of a file.

    A line is a word, its columns and at last its tag, with white space between them; a blank line
    ends a sentence, and lines of `-DOCSTART-` are skipped. Tags are `O`, `B-kind`, `I-kind`.

    Raises:
        ValueError: no sentence, or a line with one column, with another number of columns than
            the first one, or with another tag; file and line are named.
    """
    sentences = [Tagged([], [])]
    n_columns = 0
    for at, line in _lines(file):
        columns = line.split()
        if not columns or columns[0] == "-DOCSTART-":
            sentences.append(Tagged([], []))
            continue
        n_columns = n_columns or len(columns)
        if len(columns) != n_columns or n_columns == 1:
            raise ValueError(
                f"{at}: a line must have a word, {'' if n_columns == 1 else n_columns - 2} columns"
                f" and a tag, got {len(columns)} columns: {line.strip()[:40]!r}"
            )
        if not TAG.fullmatch(columns[-1]):
            raise ValueError(
                f"{at}: the last column must be a tag O, B-kind or I-kind, got {columns[-1]!r}; "
                "write other schemes (BIOES) as BIO"
            )
        sentences[-1].words.append(columns[0])
        sentences[-1].tags.append(columns[-1])
    if not (found := [sentence for sentence in sentences if sentence.words]):
        raise ValueError(f"{file} has no sentence: lines of words with their tags")
    return found


def entities(tags: Sequence[str]) -> set[Entity]:
    """The entities of the tags of a sentence.

    One begins at `B-kind`, and at an `I-kind` that continues none of its kind; so the tags of BIO
    and of IOB1, where `B-` only parts neighbours of a kind, are read alike, and so are the odd
    ones that a model predicts. Tjong Kim Sang and De Meulder 2003 score this way.

    >>> sorted(entities(["I-PER", "I-PER", "B-PER", "O", "I-LOC"]))
    ... # doctest: +NORMALIZE_WHITESPACE
    [Entity(kind='LOC', start=4, stop=5), Entity(kind='PER', start=0, stop=2),
     Entity(kind='PER', start=2, stop=3)]
    """
    found = set()
    start, kind = 0, ""
    for place, tag in enumerate([*tags, OUTSIDE]):
        mark, _, own = tag.partition("-")
        if kind and (mark != "I" or own != kind):
            found.add(Entity(kind, start, place))
            kind = ""
        if own and not kind:
            start, kind = place, own
    return found


def _lines(file: Path) -> Iterator[tuple[str, str]]:
    """All lines, blank ones too, each after its place `<file>:<number>`."""
    # As bytes: text mode would also break lines at a lone carriage return.
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield f"{file}:{number}", line.decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise ValueError(f"{file}:{number}: not UTF-8 ({error.reason})") from error


CATEGORIES = ("Lexical Semantics", "Predicate-Argument Structure", "Logic", "Knowledge")
TEXTS = {"Premise": "sentence1", "Hypothesis": "sentence2"}
ALL = "all"


class Diagnostic(NamedTuple):
    """Pairs as rows of SNLI, and which rows each category has; a row may be in several."""

    rows: list[Row]
    category: dict[str, np.ndarray]  # name -> mask [N]; `all` has every row


def read_diagnostic(file: Path) -> Diagnostic:
    """The rows of a file with tabs between its columns, named in its first line.

    It has the columns of `CATEGORIES` (empty where a row is not of one), Premise, Hypothesis and
    Label (entailment, neutral or contradiction); others are not read.

    Raises:
        ValueError: a column that is missing, a line with more columns, another label, or no line.
    """
    try:
        table = pd.read_csv(
            file, sep="\t", dtype=str, keep_default_na=False, quoting=3, encoding="utf-8-sig"
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise ValueError(f"{file} is no table with tabs between its columns: {error}") from error
    if lacking := [name for name in (*CATEGORIES, *TEXTS, "Label") if name not in table]:
        raise ValueError(f"{file}:1: lacks the columns {', '.join(lacking)}, between tabs")
    if table.empty:
        raise ValueError(f"{file} has no row below its header")
    if len(odd := table[~table["Label"].isin(DATA.classes)]):
        raise ValueError(
            f"{file}, row {odd.index[0] + 1}: Label must be one of {', '.join(DATA.classes)}, got "
            f"{odd['Label'].iloc[0]!r}"
        )
    label = table["Label"].map(DATA.classes.index)
    rows = table[[*TEXTS]].rename(columns=TEXTS).assign(label=label).to_dict("records")
    masks = {name: (table[name].str.strip() != "").to_numpy() for name in CATEGORIES}
    return Diagnostic(rows, {ALL: np.ones(len(rows), dtype=bool), **masks})


def matthews(label_N: Floats, class_PN: Floats, count_RN: Floats) -> Floats:
    """The correlation of predicted and true classes, in [−1, 1]: 0 is chance, 1 all right.

    `[R, P]`, of P vectors of predictions, where row n counts count_RN[r, n] times.

    R_K = (c·N − Σ_k p_k·t_k)/√((N² − Σ p_k²)(N² − Σ t_k²)), with c right of N rows, and of class k
    p_k predicted and t_k true; for two classes it is Matthews' coefficient. Where either side has
    one class only it is not defined, and 0 here. Gorodkin 2004, equation 8; the score of the
    diagnostic set (R₃).

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
