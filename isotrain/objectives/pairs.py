"""What losses of rows that belong together refuse. N pairs of rows, D dimensions."""

from __future__ import annotations

from torch import Tensor

from isotrain.geometry.rows import check_shape


def check_pairs(x_ND: Tensor, y_ND: Tensor, min_rows: int = 1) -> None:
    """Refuses what is not one row of `y [N, D]` for each row of `x [N, D]`.

    Raises:
        ValueError: not `[N, D]`, fewer than `min_rows` rows, or two shapes.

    >>> import torch
    >>> check_pairs(torch.eye(2), torch.eye(2))
    """
    check_shape(x_ND, min_rows)
    if y_ND.shape != x_ND.shape:
        raise ValueError(
            f"pairs are one row for each row, {tuple(x_ND.shape)}, got {tuple(y_ND.shape)}; repeat "
            "a row that is in several pairs"
        )


def check_labels(rows_ND: Tensor, labels_N: Tensor) -> None:
    """Refuses what is not one label `[N]` for each row or pair of rows.

    Raises:
        ValueError: labels of another shape.

    >>> import torch
    >>> check_labels(torch.eye(2), torch.tensor([0, 1]))
    """
    if labels_N.shape != rows_ND.shape[:1]:
        raise ValueError(
            f"labels are one for each row, [{len(rows_ND)}], got {tuple(labels_N.shape)}; give as "
            "many"
        )
