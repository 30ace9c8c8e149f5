"""Entailed pairs of SNLI, with contradictions as hard negatives, for contrastive training."""

from typing import Annotated

from pydantic import Field

from isotrain.arguments import checked
from isotrain.tasks.contrastive import STSB, Contrastive
from isotrain.tasks.data.sources import Source
from isotrain.tasks.presets import preset
from isotrain.types import Row

DATA = preset("snli").data_set
ENTAILED, CONTRADICTED = DATA.classes.index("entailment"), DATA.classes.index("contradiction")


class NLIPairs(Contrastive):
    """A premise and a hypothesis that it entails, and perhaps one that it contradicts, of SNLI.

    The training examples of supervised SimCSE (Gao et al. 2021), one for each entailed hypothesis.
    Hard negatives need a premise with hypotheses of both kinds; its contradicted ones are used in
    turn. Rows without gold, and unused ones, are counted in `left_out`.

    Args: those of `Contrastive`, and
        hard_negatives: true = (premise, entailed, contradicted), false = (premise, entailed).
    """

    data_sets = DATA, STSB
    name = "nli_pairs"

    @checked
    def __init__(
        self,
        hard_negatives: bool = False,
        max_length: Annotated[int, Field(ge=3)] = 128,
        train_length: Annotated[int, Field(ge=3)] = 32,
        prefix: str = "",
    ) -> None:
        super().__init__(max_length, train_length, prefix)
        self.hard_negatives = hard_negatives
        self.n_sequences = 3 if hard_negatives else 2

    def training_rows(self, source: Source) -> list[Row]:
        """Examples of `sentence1` (premise), `sentence2` (entailed) and perhaps `sentence3`.

        Raises:
            ValueError: no premise has the hypotheses that an example needs.
        """
        rows = self.with_gold(source, DATA, "train")
        by_premise: dict[str, tuple[list[Row], list[str]]] = {}
        for row in rows:
            entailed, contradicted = by_premise.setdefault(row["sentence1"], ([], []))
            if row["label"] == ENTAILED:
                entailed.append(row)
            elif row["label"] == CONTRADICTED:
                contradicted.append(row["sentence2"])
        examples: list[Row] = []
        n_used = 0
        for entailed, contradicted in by_premise.values():
            if not self.hard_negatives:
                examples += entailed
                n_used += len(entailed)
            elif contradicted:
                examples += [
                    {**row, "sentence3": contradicted[i % len(contradicted)]}
                    for i, row in enumerate(entailed)
                ]
                n_used += len(entailed) + min(len(entailed), len(contradicted))
        if not examples:
            kinds = "entailed and a contradicted" if self.hard_negatives else "entailed"
            raise ValueError(
                f"none of {len(by_premise)} premises in {source.revision_of(DATA)} has an {kinds} "
                "hypothesis; use "
                + ("task.hard_negatives=false" if self.hard_negatives else "other data")
            )
        self.leave_out("train: of no example", len(rows) - n_used)
        return [{k: v for k, v in row.items() if k != "label"} for row in examples]
