"""Origin of outlier dimensions: gains and biases of norms, embedding tables. D dimensions."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from isotrain.analysis.types import Record
from isotrain.encoders.base import Encoder

NORMS = ("LayerNorm", "RMSNorm")  # how the types of norms end, in torch and in transformers


def norm_records(encoder: Encoder, dims: Sequence[int]) -> list[Record]:
    """One record per norm of an encoder and dimension of `dims`: gain, bias and z-scores.

    Norms are found by their type. `place` is l − 1 + k/n for the k-th of the n norms of block l.
    Scores are `against_others`.
    """
    records: list[Record] = []
    for place, layer, name, norm in _norms(encoder):
        for i in dims:
            found: dict[str, str | float | int | None] = {"kind": "norm", "layer": layer}
            found |= {"norm": name, "place": place, "dimension": i}
            for part, key in (("weight", "gain"), ("bias", "bias")):
                value_D = getattr(norm, part, None)
                if value_D is not None:
                    found[key] = float(value_D.detach()[i])
                    found[f"{key}_score"] = against_others(value_D, i, dims)
            records.append(found)
    return records


def table_records(encoder: Encoder, dims: Sequence[int]) -> list[Record]:
    """One record per embedding table of width D and dimension of `dims`.

    `size`: mean |entry| of the column, pad left out; `others`: mean of that over the dimensions
    not among `dims`; `score`: its z-score against them.
    """
    records: list[Record] = []
    for path, table in encoder.named_modules():
        if not isinstance(table, nn.Embedding) or table.embedding_dim != encoder.width:
            continue
        rows = torch.ones(table.num_embeddings, dtype=torch.bool)
        if table.padding_idx is not None:
            rows[table.padding_idx] = False
        size_D = table.weight.detach()[rows.to(table.weight.device)].double().abs().mean(dim=0)
        for i in dims:
            records.append(
                {
                    "kind": "table",
                    "table": path.rpartition(".")[2],
                    "n_rows": int(rows.sum()),
                    "dimension": i,
                    "size": float(size_D[i]),
                    "others": float(size_D[_others(len(size_D), dims)].mean()),
                    "score": against_others(size_D, i, dims),
                }
            )
    return records


@torch.no_grad()
def against_others(value_D: Tensor, i: int, dims: Sequence[int]) -> float | None:
    """(v_i − mean)/sd (divisor n − 1) over the dimensions that are neither i nor in `dims`.

    None where those are fewer than two or all equal.

    >>> against_others(torch.tensor([1.0, 2.0, 3.0, 9.0, 70.0]), 3, [4])
    7.0
    """
    value_D = value_D.detach().double()
    others = value_D[_others(len(value_D), [*dims, i])]
    if len(others) < 2 or not bool((spread := others.std()) > 0):
        return None
    return float((value_D[i] - others.mean()) / spread)


def _others(width: int, dims: Sequence[int]) -> Tensor:
    kept_D = torch.ones(width, dtype=torch.bool)
    kept_D[torch.tensor(list(dims), dtype=torch.long)] = False
    return kept_D


def _norms(encoder: Encoder) -> Iterator[tuple[float, int, str, nn.Module]]:
    """Place, layer, name and norm, in the order of places."""
    seen: set[int] = set()
    parts = [(0, encoder.embeddings), *enumerate(encoder.blocks, start=1)]
    for layer, part in parts:
        own = [(name, m) for name, m in part.named_modules() if _is_norm(m, encoder.width)]
        seen |= {id(m) for _, m in own}
        for k, (name, norm) in enumerate(own, start=1):
            place = max(0.0, layer - 1 + k / len(own))
            yield place, layer, name or type(norm).__name__, norm
    for path, m in encoder.named_modules():
        if _is_norm(m, encoder.width) and id(m) not in seen:
            yield encoder.n_blocks + 0.5, encoder.n_blocks, path.rpartition(".")[2], m


def _is_norm(module: nn.Module, width: int) -> bool:
    weight = getattr(module, "weight", None)
    is_gain = isinstance(weight, Tensor) and weight.shape == (width,)
    return is_gain and type(module).__name__.endswith(NORMS)
