"""SST-2: is a sentence of a film review positive? (Socher et al. 2013)"""

from __future__ import annotations

from isotrain.tasks.data.sources import DataSet

DATA = DataSet(
    name="sst2",
    fields={"sentence": str, "label": int},
    target="label",
    hub_id="nyu-mll/glue",
    hub_config="sst2",
    hub_revision="bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c",
    folders=("SST-2",),
    classes=("negative", "positive"),
)
