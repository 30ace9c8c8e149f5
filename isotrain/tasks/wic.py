"""WiC: does a word have the same sense in two sentences? (Pilehvar and Camacho-Collados 2019)"""

from typing import Annotated, Any, Literal

from pydantic import Field

from isotrain.arguments import checked
from isotrain.tasks.classification import Classification
from isotrain.tasks.data.encoding import Form, encode_pairs
from isotrain.tasks.data.sources import DataSet
from isotrain.types import Example, Row

DATA = DataSet(
    name="wic",
    fields={
        **dict.fromkeys(("word", "sentence1", "sentence2"), str),
        **dict.fromkeys(("start1", "end1", "start2", "end2", "label"), int),
    },
    target="label",
    hub_id="aps/super_glue",
    hub_config="wic",
    hub_revision="3de24cf8022e94f4ee4b9d55a6f539891524d646",
    folders=("WiC",),
    classes=("False", "True"),
)


class WiC(Classification):
    """Two classes, 1 = same sense; scored by accuracy. Every batch has the target spans.

    Args: as in `TextTask`, and
        prompt: prefix of sentence 1: `word` = "word: ", so that CLS pooling sees the target;
            `none` = no prefix, for span pooling.
    """

    data_set = DATA
    name = "wic"

    @checked
    def __init__(
        self,
        form: Form = "cross",
        max_length: Annotated[int, Field(ge=3)] = 128,
        prompt: Literal["word", "none"] = "word",
        head_dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1,
    ) -> None:
        pair = ("sentence1", "sentence2")
        super().__init__(self.name, pair, "label", DATA.classes, form, max_length, head_dropout)
        self.data_set, self.prompt = DATA, prompt

    @property
    def n_spans(self) -> int:  # type: ignore[override]
        """The target words of both sentences, or of one."""
        return 2 // self.n_sequences

    def encode(self, rows: list[Row], tokenizer: Any) -> list[Example]:
        """Encode sentence pairs, with the token span of the target in each sentence."""
        pairs, spans = [], []
        for row in rows:
            prompt = f"{row['word']}: " if self.prompt == "word" else ""
            shift = len(prompt)
            pairs.append((prompt + row["sentence1"], row["sentence2"]))
            spans.append(
                ((row["start1"] + shift, row["end1"] + shift), (row["start2"], row["end2"]))
            )
        labels = [self.label(row) for row in rows]
        return encode_pairs(pairs, labels, tokenizer, self.form, self.max_length, spans)

    def check_row(self, row: Row) -> None:
        """Reject an empty span, or one of partial words; the word form is not checked."""
        for number in "12":
            start, end, text = row["start" + number], row["end" + number], row["sentence" + number]
            form = text[start:end] if 0 <= start < end <= len(text) else ""
            if not form or form != form.strip() or _cuts(text, start) or _cuts(text, end):
                raise ValueError(
                    f"{row['at']}: start{number} and end{number} must be those of whole words of "
                    f"sentence{number} (0 to {len(text)}, the end excluded), got {start} and {end} "
                    f"({form[:40]!r})"
                )


def _cuts(text: str, at: int) -> bool:
    """Whether a position is inside a word: between two letters of a script with capitals.

    Scripts without capitals, such as Chinese and Korean, do not separate all words. The `n't` of
    `don't` counts as a word.
    """
    before, after = text[at - 1 : at], text[at : at + 1]
    is_within = before.lower() != before.upper() and after.lower() != after.upper()
    return is_within and text[at : at + 2] not in ("n'", "n’")
