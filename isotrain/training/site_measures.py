"""What an isotropy layer did to the rows of an evaluation. N rows, D width, M rows of a queue."""

from __future__ import annotations

import torch
from torch import Tensor

from isotrain.geometry.levels import energy_kept, rms_distance
from isotrain.geometry.rows import finite_rows
from isotrain.geometry.scatter import class_scatter, label_classes


def site_measures(
    before_ND: Tensor, after_ND: Tensor, labels_N: Tensor | None, queue_MD: Tensor | None
) -> dict[str, Tensor]:
    """What the layer kept of the rows, took of their classes, and how stale its queue is.

    `energy_kept`: scatter of the rows about their mean, after over before. With labels (rows own
    one; scores are cut into five classes), `label_scatter_removed`: 1 − s after / s before, s the
    share tr S_B/tr S_T of the scatter that is between classes: 1 = the class means are equal, 0 =
    they stand as far apart against the spread of all rows as before, below 0 = farther. With a
    queue: `queue_gap`, the distance of the queue's mean from that of the rows, over the rows' rms
    distance from it (0 = the statistics fit), and `queue_spread`, the queue's rms distance over
    that of the rows (1 = they fit). What is not defined is left out.

    >>> x = torch.tensor([[2.0, 0.0], [-2.0, 0.0]])
    >>> found = site_measures(x, x / 2, torch.tensor([0, 1]), x + 1.0)
    >>> {name: round(value.item(), 3) for name, value in found.items()}
    {'energy_kept': 0.25, 'label_scatter_removed': 0.0, 'queue_gap': 0.707, 'queue_spread': 1.0}
    """
    finite_N = torch.isfinite(before_ND).all(dim=1) & torch.isfinite(after_ND).all(dim=1)
    if labels_N is not None:
        finite_N = finite_N & torch.isfinite(labels_N)
    before_ND, after_ND = before_ND[finite_N].double(), after_ND[finite_N].double()
    rms = rms_distance(before_ND) if len(before_ND) else torch.tensor(0.0)
    if not bool(rms > 0):
        return {}
    found = {"energy_kept": energy_kept(before_ND, after_ND)}
    if labels_N is not None:
        class_N = label_classes(labels_N[finite_N])
        scatters = [class_scatter(x_ND, class_N) for x_ND in (before_ND, after_ND)]
        totals = [scatter.between + scatter.within for scatter in scatters]
        if bool(scatters[0].between > 0) and bool(totals[1] > 0):
            before, after = (s.between / t for s, t in zip(scatters, totals, strict=True))
            found["label_scatter_removed"] = 1.0 - after / before
    if queue_MD is not None and len(queue_MD := finite_rows(queue_MD.double())):
        found["queue_gap"] = (queue_MD.mean(dim=0) - before_ND.mean(dim=0)).norm() / rms
        found["queue_spread"] = rms_distance(queue_MD) / rms
    return found
