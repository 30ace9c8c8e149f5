"""Intra-sentence similarity: tokens against their sentence. N rows, D dimensions, G sentences."""

from __future__ import annotations

from typing import Annotated, Literal

from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.groups import (
    Groups,
    check_groups,
    group_sums,
    hashed_order,
    large_groups,
    mean_cosine_between,
    summary,
)


def intra_sentence_similarity(
    x: Tensor | Cloud,
    groups: Annotated[Tensor, "sentences"],
    form: Literal["published", "leave_one_out"] = "published",
    min_count: int = 2,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Mean cosine of tokens with the mean of their sentence; in [−1, 1], isotropic near 0.

    `x [N, D]` are tokens and `groups [N]` integers that name their sentences. Sentences of fewer
    than `min_count` rows are left out; the others, n rows each, weigh equally. Without units:

    - `value`: mean over sentences of mean_i cos(x_i, m). `form="published"`: m is the mean of all
      rows of the sentence, x_i among them, so that orthogonal rows give 1/√n, not 0, and a
      sentence of one row gives 1 (only for `min_count=1`). `form="leave_one_out"`: m is the mean
      of the other rows, and isotropic rows give 0 at any n.
    - `baseline`: anisotropy, the mean cosine of two rows of different sentences.
    - `adjusted`: `value` − `baseline`, as published. Rows in a cone of mean cosine ρ have a cosine
      of about √ρ with a mean of many, so that it exceeds 0 by √ρ − ρ where no sentence shows, in
      both forms.
    - `shuffled`: `value` with all rows dealt out anew over sentences of the same sizes (by a hash
      of their positions and `seed`); `above_shuffled`: `value` − `shuffled`, near 0 where no
      sentence shows, in a cone or not.
    - `n_groups`: sentences measured; `standard_error`: of `value` over sentences, left out for
      one.

    Unchanged by rotation, one common scale, order of rows and names of groups; moved by
    translation, and by the length of single rows, which weigh in the mean. Ignores word order.
    A zero row, or a mean of zero, has cosine 0.

    Raises:
        ValueError: not `[N, D]`, N < 2, a NaN or infinity, groups that are not one integer per
            row, another `form`, `min_count` below 1 (2 for leave_one_out), no sentence with
            `min_count` rows, or a single sentence (then there is no baseline).

    Ethayarajh 2019, definition 2 and section 3.4; leave_one_out is a correction made here.

    >>> import torch
    >>> x, groups = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> round(intra_sentence_similarity(x, groups)["value"].item(), 6)
    0.707107
    >>> intra_sentence_similarity(x, groups, form="leave_one_out")["value"].item()
    0.0
    """
    if form not in ("published", "leave_one_out"):
        raise ValueError(f"form must be published or leave_one_out, got {form!r}")
    least = 1 if form == "published" else 2
    if min_count < least:
        raise ValueError(f"min_count must be at least {least} for form={form}, got {min_count}")
    x = Cloud.of(x).rows
    found = check_groups(x, groups)
    large_G = large_groups(found, min_count)
    dealt = found._replace(index_N=found.index_N[hashed_order(len(x), seed, x.device)])
    value_G, shuffled_G = (_by_sentence(x, sentences, form) for sentences in (found, dealt))
    values = summary(value_G[large_G], mean_cosine_between(x, groups))
    shuffled = shuffled_G[large_G].mean()
    return values | {"shuffled": shuffled, "above_shuffled": values["value"] - shuffled}


def _by_sentence(x_ND: Tensor, sentences: Groups, form: str) -> Tensor:
    """Mean cosine `[G]` of the rows of each sentence with the mean of its (other) rows."""
    other_ND = group_sums(x_ND, sentences)[sentences.index_N]
    if form == "leave_one_out":
        other_ND = other_ND - x_ND
    cosine_N1 = (unit_rows(x_ND) * unit_rows(other_ND)).sum(dim=1, keepdim=True)
    return group_sums(cosine_N1, sentences)[:, 0] / sentences.count_G
