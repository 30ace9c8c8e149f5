"""The lines of a model card that show how a folder is used, and what to mind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from isotrain.export.rebuilt import Rebuilt

if TYPE_CHECKING:
    from isotrain.export.command import Format


def usage(folder: Path, rebuilt: Rebuilt, made: Format) -> str:
    """A snippet, and notes; the snippet runs as it stands where the folder is."""
    if made.name == "sentence-transformers":
        return _sentences(folder, made)
    return (
        _encoder(folder, rebuilt) if made.plan.classifier is None else _classifier(folder, rebuilt)
    )


def _classifier(folder: Path, rebuilt: Rebuilt) -> str:
    example = rebuilt.texts[0]
    texts = ", ".join(repr(column[0]) for column in example)
    kind = rebuilt.network.config.model_type
    notes = [
        "Texts are prepared as the task prepares them; the example is the first row of dev.",
        "Made for prediction. To train further, give it a fresh head: the weights of this one are "
        "scaled.",
    ]
    if kind not in ("distilbert", "gpt2"):
        notes.append("Load it in float32 or bfloat16: float16 has no room for these weights.")
    if kind == "gpt2":
        notes.append("The last hidden state is shifted by a constant that stands for the bias.")
    if rebuilt.double.logits.shape[1] == 1:
        notes.append("The one logit is the score on the scale the run learned it on.")
    return f"""```python
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({str(folder)!r})
model = AutoModelForSequenceClassification.from_pretrained({str(folder)!r}).eval()
inputs = tokenizer({texts}, truncation=True, return_tensors="pt")
with torch.no_grad():
    print(model(**inputs).logits)
```

{chr(10).join(notes)}"""


def _encoder(folder: Path, rebuilt: Rebuilt) -> str:
    texts = ", ".join(repr(column[0]) for column in rebuilt.texts[0])
    bare = ", add_pooling_layer=False" if rebuilt.network.config.model_type in POOLERS else ""
    return f"""```python
import torch
from transformers import AutoModel, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({str(folder)!r})
model = AutoModel.from_pretrained({str(folder)!r}{bare}).eval()
inputs = tokenizer({texts}, truncation=True, return_tensors="pt")
with torch.no_grad():
    print(model(**inputs).last_hidden_state.shape)
```

The encoder alone: the scores below are those of the run with its pooling, isotropy layer and head,
which are not in this folder."""


POOLERS = ("bert", "roberta", "xlm-roberta", "camembert")


def _sentences(folder: Path, made: Format) -> str:
    trusted, note = "", ""
    if made.plan.affine is None:
        trusted = ", trust_remote_code=True"
        note = (
            "\n\nIt needs isotrain installed. sentence-transformers asks for `trust_remote_code` "
            "at every class that is not its own; this folder holds no code."
        )
    return f"""```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer({str(folder)!r}{trusted})
vectors = model.encode(["A dog is barking.", "A dog makes a noise."])
print(model.similarity(vectors, vectors))
```{note}"""
