"""Read points: where objectives read embeddings in a model. Imports no torch."""

import re
from functools import cache
from typing import NamedTuple

RULE = "pooled, before, or layer_k or all (every block) followed by /cls, /tokens, /mean or /last"


class ReadPoint(NamedTuple):
    """`pooled` or `before` (output and input of the isotropy layer at `pooled`), or a block."""

    name: str  # pooled | before | layer_k | all
    view: str | None  # of a block: cls | tokens | mean | last

    def depths(self, n_blocks: int) -> list[int]:
        """Depths read: index of a hidden state, L + 1 = before, L + 2 = pooled.

        Raises:
            ValueError: a block that the encoder does not have.

        >>> [read_point(text).depths(3) for text in ("layer_0/tokens", "all/cls")]
        [[0], [1, 2, 3]]
        >>> [read_point(text).depths(3) for text in ("before", "pooled")]
        [[4], [5]]
        """
        if self.view is None:
            return [n_blocks + 1 if self.name == "before" else n_blocks + 2]
        if self.name == "all":
            return list(range(1, n_blocks + 1))
        number = int(self.name.removeprefix("layer_"))
        if number > n_blocks:
            raise ValueError(
                f"reads={self.name}/{self.view}: this encoder has layer_0 (embeddings) to "
                f"layer_{n_blocks}"
            )
        return [number]


@cache
def read_point(text: str) -> ReadPoint:
    """The read point of a name such as `layer_3/tokens`.

    Raises:
        ValueError: no read point of that name.
    """
    match = re.fullmatch(r"(pooled|before)|(layer_\d+|all)/(cls|tokens|mean|last)", text)
    if match is None:
        raise ValueError(f"a read point is {RULE}, got {text!r}")
    return ReadPoint(match[1] or match[2], match[3])
