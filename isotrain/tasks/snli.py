"""SNLI: does sentence 1 entail sentence 2, contradict it, or neither? (Bowman et al. 2015)"""

from isotrain.tasks.data.sources import DataSet
from isotrain.tasks.pairs import PairClassification

DATA = DataSet(
    name="snli",
    fields={"sentence1": str, "sentence2": str, "label": int},
    target="label",
    hub_id="stanfordnlp/snli",
    hub_config="plain_text",
    hub_revision="cdb5c3d5eed6ead6e5a341c8e56e669bb666725b",
    folders=("snli_1.0", "SNLI"),
    renames=(("premise", "sentence1"), ("hypothesis", "sentence2"), ("gold_label", "label")),
    classes=("entailment", "neutral", "contradiction"),
    files=("{}.jsonl", "{}.tsv", "snli_1.0_{}.jsonl"),
    hides=("train", "dev", "test"),
)


class SNLI(PairClassification):
    """Three classes: 0 entailment, 1 neutral, 2 contradiction. Arguments as `PairTask`.

    Rows on which the annotators did not agree (−1, or a dash) are left out of every split.
    """

    data_set = DATA
    name = "snli"
