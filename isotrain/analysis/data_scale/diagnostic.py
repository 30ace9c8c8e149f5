"""The diagnostic set of GLUE: what entailment turns on, category by category.

N rows, C classes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np

from isotrain.tasks.snli import DATA
from isotrain.types import Row

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
        ValueError: a column that is missing, a line with another number of columns, another
            label, or no line; file and line are named.
    """
    lines = file.read_bytes().decode("utf-8-sig").split("\n")
    names = lines[0].rstrip("\r").split("\t")
    if lacking := [name for name in (*CATEGORIES, *TEXTS, "Label") if name not in names]:
        raise ValueError(f"{file}:1: lacks the columns {', '.join(lacking)}, between tabs")
    rows: list[Row] = []
    marks: list[list[bool]] = []
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        cells = line.rstrip("\r").split("\t")
        if len(cells) != len(names):
            raise ValueError(
                f"{file}:{number}: {len(cells)} columns between tabs, the header has {len(names)}"
            )
        row = dict(zip(names, cells, strict=True))
        if row["Label"] not in DATA.classes:
            raise ValueError(
                f"{file}:{number}: Label must be one of {', '.join(DATA.classes)}, got "
                f"{row['Label']!r}"
            )
        marks.append([bool(row[name].strip()) for name in CATEGORIES])
        texts = {own: row[name] for name, own in TEXTS.items()}
        rows.append({**texts, "label": DATA.classes.index(row["Label"])})
    if not rows:
        raise ValueError(f"{file} has no row below its header")
    mark_NK = np.array(marks)
    masks = {name: mark_NK[:, k] for k, name in enumerate(CATEGORIES)}
    return Diagnostic(rows, {ALL: np.ones(len(rows), dtype=bool), **masks})


def matthews(gold_N: np.ndarray, predicted_N: np.ndarray) -> float:
    """The correlation of predicted and true classes, in [−1, 1]: 0 is chance, 1 all right.

    R_K = (c·N − Σ_k p_k·t_k)/√((N² − Σ p_k²)(N² − Σ t_k²)), with c right of N rows, and of class k
    p_k predicted and t_k true; for two classes it is Matthews' coefficient. Where either side has
    one class only it is not defined, and 0 here. Gorodkin 2004, equation 8; the score of the
    diagnostic set (R₃).

    >>> matthews(np.array([0, 1, 2, 2]), np.array([0, 1, 2, 2]))
    1.0
    """
    n_classes = int(max(gold_N.max(), predicted_N.max())) + 1
    true_C = np.bincount(gold_N, minlength=n_classes).astype(float)
    predicted_C = np.bincount(predicted_N, minlength=n_classes).astype(float)
    n, n_right = len(gold_N), int((gold_N == predicted_N).sum())
    spread = (n**2 - predicted_C @ predicted_C) * (n**2 - true_C @ true_C)
    return float((n_right * n - predicted_C @ true_C) / math.sqrt(spread)) if spread else 0.0
