"""Temperature scaling: the factor of logits with the smallest log loss. N examples, C classes."""

from torch import Tensor
from torch.nn.functional import cross_entropy

SHARPEST = 100.0  # factor of logits with an rms of 1; larger is better only without errors
HALVINGS = 60  # to rounding


def best_factor(logits_NC: Tensor, labels_N: Tensor, low: float, high: float) -> float:
    """The factor b in [low, high] that minimises the mean log loss of b·logits.

    The loss is convex in b, with the derivative mean(Σ_c p_c z_c − z_label), p = softmax(b·z):
    its zero is bisected, in float64.

    >>> import torch
    >>> logits = torch.tensor([[1.0, 0.0]] * 4)  # three of four right: exp(b)/(1 + exp(b)) = 3/4
    >>> round(best_factor(logits, torch.tensor([0, 0, 0, 1]), 0.0, 100.0), 4)  # ln 3
    1.0986
    """
    logits_NC = logits_NC.double()
    label_logit_N = logits_NC.gather(1, labels_N[:, None])[:, 0]

    def slope(factor: float) -> float:
        p_NC = (factor * logits_NC).softmax(dim=1)
        return float(((p_NC * logits_NC).sum(dim=1) - label_logit_N).mean())

    if slope(low) >= 0:
        return low
    if slope(high) <= 0:
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return low


def scaled_loss(
    logits_NC: Tensor, labels_N: Tensor, dev_logits_NC: Tensor, dev_labels_N: Tensor
) -> float | None:
    """Mean log loss of logits / T in nats, with the T > 0 that minimises it on dev; [0, ∞).

    It is ln C if dev is predicted best by equal probabilities. None if T would be 0: every dev
    example is correct.

    Source: Guo et al. 2017, section 4.2.

    >>> import torch
    >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    >>> labels = torch.tensor([0, 0, 1, 1])  # confident in each, right in three of four
    >>> f"{cross_entropy(logits, labels):.3f} {scaled_loss(logits, labels, logits, labels):.3f}"
    '1.018 0.562'
    """
    dev_NC = dev_logits_NC.double()
    rms = float((dev_NC - dev_NC.mean(dim=1, keepdim=True)).square().mean().sqrt()) or 1.0
    factor = best_factor(dev_NC / rms, dev_labels_N, 0.0, SHARPEST)
    if factor == SHARPEST:
        return None
    return float(cross_entropy(factor / rms * logits_NC.double(), labels_N))
