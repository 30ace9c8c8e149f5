"""Log loss after temperature scaling. N examples, C classes."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import cross_entropy

SHARPEST = 100.0  # 1/T above which dev would be predicted without a mistake
HALVINGS = 60


def scaled_loss(
    logits_NC: Tensor, labels_N: Tensor, dev_logits_NC: Tensor, dev_labels_N: Tensor
) -> float | None:
    """Mean log loss of logits / T in nats, with the T > 0 that minimises it on dev; [0, ∞).

    It is ln C where dev is predicted best by equal probabilities, and None where the loss of dev
    falls without end as T goes to 0 (every example of dev right).

    Source: Guo et al. 2017, section 4.2.

    >>> import torch
    >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    >>> labels = torch.tensor([0, 0, 1, 1])  # confident in each, right in three of four
    >>> f"{cross_entropy(logits, labels):.3f} {scaled_loss(logits, labels, logits, labels):.3f}"
    '1.018 0.562'
    """
    inverse = inverse_temperature(dev_logits_NC.double(), dev_labels_N)
    if inverse is None:
        return None
    return float(cross_entropy(inverse * logits_NC.double(), labels_N))


def inverse_temperature(logits_NC: Tensor, labels_N: Tensor) -> float | None:
    """The 1/T in [0, 100] that minimises the mean log loss of logits / T; None above 100.

    The loss is convex in b = 1/T with the derivative mean(Σ_c p_c z_c − z_label), p =
    softmax(b·z): its zero is bisected.

    >>> import torch
    >>> logits = torch.tensor([[3.0, 0.0]] * 4, dtype=torch.float64).log1p()  # ln 4
    >>> f"{inverse_temperature(logits, torch.tensor([0, 0, 0, 1])):.4f}"  # ln 3 / ln 4
    '0.7925'
    """
    own_N = logits_NC.gather(1, labels_N[:, None])[:, 0]

    def slope(inverse: float) -> float:
        share_NC = (inverse * logits_NC).softmax(dim=1)
        return float(((share_NC * logits_NC).sum(dim=1) - own_N).mean())

    if slope(0.0) >= 0:
        return 0.0
    if not slope(SHARPEST) > 0:
        return None
    low, high = 0.0, SHARPEST
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return high
