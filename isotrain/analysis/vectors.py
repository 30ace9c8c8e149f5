"""Precomputed embeddings with one token each: npy or parquet files.

L layers, N tokens, D dimensions, n sampled tokens.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from isotrain.runs.record import CannotRunError

TOKEN, VECTOR, LAYER, SENTENCE = "token", "vector", "layer", "sentence"  # columns of a parquet file


class Vectors(NamedTuple):
    """Tokens, and their embeddings in each layer, read on demand."""

    tokens: list[str]
    layers: list[int]
    n_sentences: Callable[[np.ndarray], int | None]  # of the tokens at some positions
    rows: Callable[[int, np.ndarray], np.ndarray]  # of a layer at n positions, [n, D] float32


def open_vectors(file: str, tokens: str | None = None) -> Vectors:
    """Open a file of embeddings: tokens are read, embeddings are read later.

    `.npy`: floats `[N, D]` or `[L, N, D]`, and in `tokens` a text file with one token a line.
    `.parquet`: a line an embedding, with a list of floats in column `vector`, text in column
    `tokens` (`token` if None), optionally the number of its `layer` (each layer with the same
    tokens in the same order) and its `sentence`. A ValueError for a file that does not fit.
    """
    path = Path(file).expanduser()
    if not path.is_file() or path.suffix not in (".npy", ".parquet"):
        raise ValueError(f"analysis.vectors must be a .npy or a .parquet file, got {file}")
    opened = _npy(path, tokens) if path.suffix == ".npy" else _parquet(path, tokens or TOKEN)
    if "" in opened.tokens:
        at = opened.tokens.index("") + 1
        raise ValueError(f"every token of {path} must be text; token {at} is empty")
    return opened


def _npy(path: Path, tokens: str | None) -> Vectors:
    if tokens is None or not Path(tokens).expanduser().is_file():
        raise ValueError(
            f"analysis.vectors={path} needs analysis.tokens=FILE, a text file with one token a "
            f"line, got {tokens}"
        )
    array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim not in (2, 3) or array.dtype.kind != "f" or 0 in array.shape:
        shape = f"{array.dtype} {list(array.shape)}"
        raise ValueError(f"{path} must be floats [N, D] or [layers, N, D], got {shape}")
    layers_LND = array if array.ndim == 3 else array[None]
    text = Path(tokens).expanduser().read_bytes().decode("utf-8").replace("\r\n", "\n")
    names = text.removesuffix("\n").split("\n")
    if len(names) != layers_LND.shape[1]:
        raise ValueError(
            f"analysis.tokens={tokens} must have a line for each of the N = "
            f"{layers_LND.shape[1]} vectors of {path}, got {len(names)} lines"
        )
    return Vectors(
        names,
        [*range(len(layers_LND))],
        lambda at_n: None,
        lambda layer, at_n: _finite(layers_LND[layer][at_n], path),
    )


def _parquet(path: Path, column: str) -> Vectors:
    schema = pq.read_schema(path)
    if absent := [name for name in (column, VECTOR) if name not in schema.names]:
        raise ValueError(
            f"{path} lacks the column {' and '.join(absent)}; it has {', '.join(schema.names)} "
            "(analysis.tokens names the column of the tokens)"
        )
    optional = [name for name in (LAYER, SENTENCE) if name in schema.names]
    known = pq.read_table(path, columns=[column, *optional]).to_pandas()
    layer_R = known.get(LAYER, np.zeros(len(known), dtype=np.int64))
    at = {int(layer): np.flatnonzero(layer_R == layer) for layer in np.unique(layer_R)}
    token_R = known[column].fillna("").to_numpy(dtype=object)
    first = next(iter(at.values()), np.zeros(0, dtype=np.int64))
    if not len(first) or any(not np.array_equal(token_R[k], token_R[first]) for k in at.values()):
        raise ValueError(f"every layer of {path} must have the same tokens in the same order")

    def rows(layer: int, at_n: np.ndarray) -> np.ndarray:
        vectors = pq.read_table(path, columns=[VECTOR])[VECTOR]
        try:
            found = np.array(vectors.take(pa.array(at[layer][at_n])).to_pylist(), dtype=np.float32)
        except (ValueError, TypeError) as error:
            raise CannotRunError(
                f"{VECTOR} of {path} must be lists of floats, all of one length: {error}"
            ) from error
        return _finite(found, path)

    def n_sentences(at_n: np.ndarray) -> int | None:
        return len(set(known[SENTENCE].iloc[first[at_n]])) if SENTENCE in known else None

    return Vectors([str(token) for token in token_R[first]], [*at], n_sentences, rows)


def _finite(found: np.ndarray, path: Path) -> np.ndarray:
    rows = np.asarray(found, dtype=np.float32)
    if not np.isfinite(rows).all():
        raise CannotRunError(f"vectors must be finite, and some of {path} are not")
    return rows
