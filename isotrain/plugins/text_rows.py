"""Texts, or rows that are tokenised already, as batches that the monitor's rows are taken from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from isotrain.types import Example


def examples_of(
    rows: Iterable[Any], tokenizer: Any, max_length: int, labels: Sequence[float] | None = None
) -> tuple[list[Example], bool]:
    """Examples of one sequence each, and whether the model is to be given their segments.

    Args:
        rows: texts; pairs of texts, each one sequence; or tokenised rows, mappings with
            `input_ids` (and `attention_mask`, `token_type_ids`), taken as they are without pads.
        tokenizer: of texts.
        max_length: tokens of a text at most.
        labels: class or score of each row.

    Raises:
        ValueError: fewer than two rows, one text in place of a list, texts without a tokenizer, or
            other than one label a row.
    """
    if isinstance(rows, str):
        raise ValueError(f"rows are a list of texts, got the text {rows!r}; pass [{rows!r}]")
    given = list(rows)
    if len(given) < 2:
        raise ValueError(f"a cloud needs at least two rows, got {len(given)}; give more texts")
    if labels is not None and len(labels) != len(given):
        raise ValueError(f"labels are one a row, got {len(labels)} for {len(given)} rows")
    if not isinstance(given[0], Mapping):
        if tokenizer is None:
            raise ValueError(
                "texts need a tokenizer: give processing_class to the Trainer, or tokenizer= here"
            )
        found = tokenizer(given, truncation=True, max_length=max_length)
        given = [{key: found[key][i] for key in found} for i in range(len(given))]
    examples = []
    for index, row in enumerate(given):
        real = [bool(real) for real in row.get("attention_mask", [1] * len(row["input_ids"]))]

        def kept(name: str, row: Any = row, real: list[bool] = real) -> list[int]:
            return [int(x) for x, is_real in zip(row[name], real, strict=True) if is_real]

        input_ids = kept("input_ids")
        nothing = [0] * len(input_ids)
        segments = kept("token_type_ids") if "token_type_ids" in row else nothing
        label = 0 if labels is None else labels[index]
        examples.append(Example([input_ids], [segments], [nothing], None, label, index))
    return examples, "token_type_ids" in given[0]
