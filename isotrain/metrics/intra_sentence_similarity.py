"""Intra-sentence similarity: tokens against their sentence. N tokens, D dimensions, G sentences."""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.cosine import paired_cosines
from isotrain.geometry.groups import (
    Groups,
    check_groups,
    group_sums,
    hashed_order,
    large_groups,
    mean_cosine_between,
    summary,
)


@checked
def intra_sentence_similarity(
    x: Tensor | Cloud,
    groups: Annotated[Tensor, "sentences"],
    min_count: Annotated[int, Field(ge=1)] = 2,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Mean cosine of tokens with the mean of their sentence; in [−1, 1], isotropic near 0.

    `x [N, D]` are token embeddings, `groups [N]` integers that name their sentences. Sentences of
    fewer than `min_count` tokens are left out; the others, n tokens each, weigh equally.

    - `value`: mean over sentences of mean_i cos(x_i, m), m the mean of the sentence, x_i included,
      so that orthogonal tokens give 1/√n, not 0.
    - `baseline`: anisotropy, the mean cosine of two tokens of different sentences.
    - `adjusted`: `value` − `baseline`, as published. In a cone of mean cosine ρ it exceeds 0 by
      √ρ − ρ even where no sentence shows, as cosines with a mean of many are about √ρ.
    - `shuffled`: `value` with tokens permuted over sentences of the same sizes (by a hash of
      position and `seed`); `above_shuffled`: `value` − `shuffled`, near 0 where no sentence shows.
    - `n_groups`: sentences measured; `standard_error`: of `value` over sentences, absent for one.

    While a model trains, a sentence is its tokens among the `monitor.max_rows` sampled ones: fewer
    tokens give a higher `value`. Compare equal samples there; `analysis=contextuality` takes whole
    sentences. Long vectors weigh more in the mean. A zero vector, or a zero mean, has cosine 0.

    Raises:
        ValueError: no sentence with `min_count` tokens; a single sentence.

    Ethayarajh 2019, definition 2 and section 3.4.

    >>> import torch
    >>> x, groups = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> round(intra_sentence_similarity(x, groups)["value"].item(), 6)
    0.707107
    """
    x = Cloud.of(x).rows
    sentences = check_groups(x, groups)
    large_G = large_groups(sentences, min_count)
    permuted = sentences._replace(index_N=sentences.index_N[hashed_order(len(x), seed, x.device)])
    value_G, shuffled_G = (sentence_cosines(x, split) for split in (sentences, permuted))
    values = summary(value_G[large_G], mean_cosine_between(x, groups))
    shuffled = shuffled_G[large_G].mean()
    return values | {"shuffled": shuffled, "above_shuffled": values["value"] - shuffled}


def sentence_cosines(x_ND: Tensor, sentences: Groups) -> Tensor:
    """Mean cosine `[G]` of the tokens of each sentence with their mean."""
    cosine_N1 = paired_cosines(x_ND, group_sums(x_ND, sentences)[sentences.index_N])[:, None]
    return group_sums(cosine_N1, sentences)[:, 0] / sentences.count_G
