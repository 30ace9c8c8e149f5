"""Outlier dimensions by position, and with position embeddings zeroed or shuffled.

N embeddings (tokens), L layers, D dimensions.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from isotrain.analysis.encode import encode_rows
from isotrain.analysis.jackknife import anisotropy
from isotrain.analysis.outliers import Search, mean_scores
from isotrain.analysis.types import Record, Subject
from isotrain.encoders.base import Encoder
from isotrain.geometry.groups import hashed_order

GIVEN, ZEROED, SHUFFLED = "as they are", "zeroed", "shuffled"
MIN_ROWS = 20  # fewest tokens at a position of the profile


def position_tables(encoder: Encoder) -> list[nn.Embedding]:
    """The tables of absolute positions, by their names; none with rotary or relative ones."""
    tables = [
        (path.rpartition(".")[2], module)
        for path, module in encoder.named_modules()
        if isinstance(module, nn.Embedding)
    ]
    return [table for name, table in tables if "position" in name or name == "wpe"]


@contextmanager
def changed_positions(
    tables: Sequence[nn.Embedding], how: str, longest: int, seed: int
) -> Iterator[None]:
    """Position embeddings set to zero, or permuted among the `longest` first positions.

    Behind the pad row, if the table has one. The weights are restored at the end.
    """
    weights = [table.weight.detach().clone() for table in tables]
    try:
        for table in tables:
            first = 0 if table.padding_idx is None else table.padding_idx + 1
            used = table.weight.detach()[first : first + longest]
            if how == ZEROED:
                table.weight.detach().zero_()
            elif how == SHUFFLED:
                used.copy_(used[hashed_order(len(used), seed)])
        yield
    finally:
        for table, weight in zip(tables, weights, strict=True):
            table.weight.detach().copy_(weight)


def position_records(subject: Subject, tails: Search) -> list[Record]:
    """Outlier scores and anisotropy of each layer without positions, and the scores by position.

    The encoder is run again on the tokens that outliers were found on. `outlier_score`: mean over
    the outliers of the |z-score| of their entry of the mean vector; `largest_score`: the largest
    of any dimension.
    """
    tables, sample = position_tables(subject.encoder), tails.sample
    longest = max(map(len, sample.tokens.ids))
    records: list[Record] = []
    for condition in (GIVEN, ZEROED, SHUFFLED) if tables else (GIVEN,):
        rows_LND = tails.rows_LND
        if condition != GIVEN:
            with changed_positions(tables, condition, longest, subject.seed):
                rows_LND = encode_rows(subject, sample.tokens, sample.spans)
        for layer, rows_ND in enumerate(rows_LND):
            x_ND = torch.from_numpy(rows_ND).double()
            cone = anisotropy(x_ND, sample.sentence_N).figures("anisotropy")
            keys = {"kind": "positions", "positions": condition, "layer": layer}
            records.append({**keys, "n_rows": len(x_ND), **cone, **_scores(x_ND, tails.dims)})
    position_N = torch.from_numpy(sample.spans.start_N)
    positions = [p for p, n in enumerate(torch.bincount(position_N).tolist()) if n >= MIN_ROWS]
    for layer, rows_ND in enumerate(tails.rows_LND):
        for p in positions:
            x_ND = torch.from_numpy(rows_ND)[position_N == p].double()
            keys = {"kind": "profile", "layer": layer, "position": p, "n_rows": len(x_ND)}
            records.append({**keys, **_scores(x_ND, tails.dims)})
    return records


def _scores(x_ND: Tensor, dims: Sequence[int]) -> Record:
    score_D = mean_scores(x_ND.mean(dim=0)[None])[0].abs()
    outlier_score = float(score_D[list(dims)].mean()) if dims else None
    return {"outlier_score": outlier_score, "largest_score": float(score_D.max())}
