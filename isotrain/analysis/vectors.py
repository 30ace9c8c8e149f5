"""Vectors that somebody else computed, with a token each: npy or parquet files.

L layers, N tokens, D dimensions, n tokens that are wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from isotrain.runs.record import CannotRunError
from isotrain.tasks.data.sources import DataSet

TOKEN, VECTOR, LAYER, SENTENCE = "token", "vector", "layer", "sentence"  # columns of a parquet file
BATCH = 16_384  # rows of a parquet file that are read at a time


class Vectors(NamedTuple):
    """Tokens, and their vectors in each layer; only those that are asked for are read."""

    tokens: list[str]
    layers: list[int]
    n_sentences: Callable[[np.ndarray], int | None]  # of the tokens at some positions
    rows: Callable[[int, np.ndarray], np.ndarray]  # of a layer at n positions, [n, D] float32


def open_vectors(file: str, tokens: str | None = None) -> Vectors:
    """The vectors of a file, opened; its tokens are read, its vectors are not.

    `.npy`: floats `[N, D]` or `[L, N, D]`, the layers numbered from 0, and in `tokens` a text
    file with one token a line. `.parquet`: a row a vector, with a list of floats in column
    `vector`, text in column `tokens` (`token` if None), optionally whole numbers in column
    `layer` (each layer with the same tokens in the same order), and `sentence`, a number or a
    name of the text that the token stands in.

    Raises:
        ValueError: no such file, another ending, or shapes, columns or tokens that do not fit.
    """
    path = Path(file).expanduser()
    if not path.is_file():
        raise ValueError(f"analysis.vectors={file} is no file; give a .npy or a .parquet file")
    if path.suffix == ".npy":
        return _open_npy(path, tokens)
    if path.suffix == ".parquet":
        return _open_parquet(path, tokens or TOKEN)
    raise ValueError(f"analysis.vectors must be a .npy or a .parquet file, got {file}")


def files_of(file: str, tokens: str | None) -> list[DataSet]:
    """The files as data sets of their own folder, so that a source tells their digest."""
    names = [file, tokens] if tokens and Path(file).suffix == ".npy" else [file]
    paths = [Path(name).expanduser().resolve() for name in names]
    return [
        DataSet(
            name=str(path.parent),
            fields={},
            target="",
            hub_id=str(path),
            hub_config=None,
            hub_revision=f"{path.stat().st_mtime_ns:x}-{path.stat().st_size:x}",
            files=(path.name.replace("{", "{{").replace("}", "}}"),),
            needs=(),
        )
        for path in paths
    ]


def _open_npy(path: Path, tokens: str | None) -> Vectors:
    if tokens is None or not Path(tokens).expanduser().is_file():
        raise ValueError(
            f"analysis.vectors={path} needs analysis.tokens=FILE, a text file with one token a "
            f"line, got {tokens}"
        )
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(
            f"{path} is no array of numbers ({error}); save it by numpy.save"
        ) from error
    if array.ndim not in (2, 3) or array.dtype.kind != "f" or 0 in array.shape:
        raise ValueError(
            f"{path} must be floats [N, D] or [layers, N, D], got {array.dtype} {list(array.shape)}"
        )
    layers_LND = array if array.ndim == 3 else array[None]
    lines = Path(tokens).expanduser().read_bytes().decode("utf-8").split("\n")
    names = [line.removesuffix("\r") for line in lines]
    names = names[:-1] if names[-1] == "" else names
    if len(names) != layers_LND.shape[1]:
        raise ValueError(
            f"analysis.tokens={tokens} must have a line for each of the N = "
            f"{layers_LND.shape[1]} vectors of {path}, got {len(names)} lines"
        )
    return Vectors(
        _checked_tokens(names, str(tokens)),
        [*range(len(layers_LND))],
        lambda at_n: None,
        lambda layer, at_n: _checked_rows(layers_LND[layer][at_n], path),
    )


def _open_parquet(path: Path, column: str) -> Vectors:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} is no parquet file ({error})") from error
    names = file.schema_arrow.names
    if absent := [name for name in (column, VECTOR) if name not in names]:
        raise ValueError(
            f"{path} lacks the column {' and '.join(absent)}; it has {', '.join(names)} "
            "(analysis.tokens names the column of the tokens)"
        )
    kind = file.schema_arrow.field(VECTOR).type
    lists = (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
    if not lists or not pa.types.is_floating(kind.value_type):
        raise ValueError(f"column {VECTOR} of {path} must be lists of floats, got {kind}")
    token_R = np.array(file.read(columns=[column])[column].to_pylist(), dtype=object)
    layer_R = np.zeros(len(token_R), dtype=np.int64)
    if LAYER in names:
        if not pa.types.is_integer(file.schema_arrow.field(LAYER).type):
            raise ValueError(f"column {LAYER} of {path} must be whole numbers")
        layer_R = file.read(columns=[LAYER])[LAYER].to_numpy()
    at = {int(layer): np.flatnonzero(layer_R == layer) for layer in np.unique(layer_R)}
    if not at:
        raise ValueError(f"{path} has no rows")
    first, *others = at.values()
    for layer, own in zip([*at][1:], others, strict=True):
        if not np.array_equal(token_R[own], token_R[first]):
            raise ValueError(
                f"every layer of {path} must have the same tokens in the same order; layer "
                f"{layer} ({len(own)} rows) differs from layer {next(iter(at))} ({len(first)} rows)"
            )

    def n_sentences(at_n: np.ndarray) -> int | None:
        if SENTENCE not in names:
            return None
        return len(set(file.read(columns=[SENTENCE])[SENTENCE].take(first[at_n]).to_pylist()))

    return Vectors(
        _checked_tokens(token_R[first].tolist(), f"column {column} of {path}"),
        [*at],
        n_sentences,
        lambda layer, at_n: _checked_rows(_taken(file, at[layer][at_n], path), path),
    )


def _taken(file: pq.ParquetFile, wanted_n: np.ndarray, path: Path) -> np.ndarray:
    """The vectors `[n, D]` of some rows of a file, a batch of it in memory at a time."""
    order = np.argsort(wanted_n, kind="stable")
    sorted_n = wanted_n[order]
    parts: list[np.ndarray] = []
    start = 0
    for batch in file.iter_batches(BATCH, columns=[VECTOR]):
        low, high = np.searchsorted(sorted_n, [start, start + len(batch)])
        own = batch.column(0).take(pa.array(sorted_n[low:high] - start))
        start += len(batch)
        widths = set(pc.list_value_length(own).to_pylist()) | {p.shape[1] for p in parts[:1]}
        if len(own) and (len(widths) != 1 or None in widths or 0 in widths):
            raise CannotRunError(
                f"every vector of {path} must have the same length, got {sorted(map(str, widths))}"
            )
        if len(own):
            parts.append(own.flatten().to_numpy(zero_copy_only=False).reshape(len(own), -1))
    found = np.concatenate(parts)
    return found[np.argsort(order, kind="stable")]


def _checked_tokens(tokens: Sequence[Any], place: str) -> list[str]:
    for number, token in enumerate(tokens, start=1):
        if not isinstance(token, str) or not token:
            raise ValueError(f"{place}: token {number} must be text, got {token!r}")
    return [*tokens]


def _checked_rows(found: np.ndarray, path: Path) -> np.ndarray:
    rows = np.asarray(found, dtype=np.float32)
    if not np.isfinite(rows).all():
        n_bad = int((~np.isfinite(rows)).any(axis=1).sum())
        raise CannotRunError(
            f"vectors must be finite; {n_bad} of {len(rows)} drawn ones of {path} are not"
        )
    return rows
