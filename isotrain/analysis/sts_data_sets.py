"""Data sets of semantic textual similarity, 2012 to 2016 and SICK-R: rows to score, not to train.

The hub's SICK-R holds all 9,927 pairs; published scores are of the 4,927 of its test split.
"""

from __future__ import annotations

from isotrain.tasks.data.sources import DataSet
from isotrain.tasks.stsb import DATA as STSB

FIELDS = {"sentence1": str, "sentence2": str, "score": float}
REVISIONS = {  # of mteb/<name>-sts
    "sts12": "a0d554a64d88156834ff5ae9920b964011b16384",
    "sts13": "7e90230a92c190f1bf69ae9002b8cea547a64cca",
    "sts14": "6031580fec1f6af667f0bd2da0a551cf4f0b2375",
    "sts15": "ae752c7c21bf194d8b67fd573edf7ae58183cbe3",
    "sts16": "4d8694f8f0e0100860b497b999b3dbed754a0513",
    "sickr": "20a6d6f312dd54037fe07a32d58e5e168867909d",
}
STS = {
    name: DataSet(
        name=name,
        fields=FIELDS,
        target="score",
        hub_id=f"mteb/{name}-sts",
        hub_config=None,
        hub_revision=revision,
        folders=(name.upper().replace("SICKR", "SICK-R"),),
        hides=(),
        needs=("test",),
    )
    for name, revision in REVISIONS.items()
} | {"stsb": STSB}
