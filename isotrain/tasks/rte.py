"""RTE: does sentence 1 entail sentence 2? (GLUE; Wang et al. 2019)"""

from isotrain.tasks.data.sources import DataSet
from isotrain.tasks.pairs import PairClassification

DATA = DataSet(
    name="rte",
    fields={"sentence1": str, "sentence2": str, "label": int},
    target="label",
    hub_id="nyu-mll/glue",
    hub_config="rte",
    hub_revision="bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c",
    folders=("RTE",),
    renames=(("premise", "sentence1"), ("hypothesis", "sentence2")),
    classes=("entailment", "not_entailment"),
)


class RTE(PairClassification):
    """Two classes, 0 entailment and 1 not_entailment. Arguments as `PairTask`."""

    data_set = DATA
    name = "rte"
