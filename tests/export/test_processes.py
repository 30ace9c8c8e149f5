"""Exports in processes of their own, without isotrain."""

import json

import pytest
import torch

from tests.processes import printed_by

pytestmark = pytest.mark.slow

WITHOUT = """
import sys

class NoIsotrain:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "isotrain":
            raise ImportError("isotrain is not to be imported here")

sys.meta_path.insert(0, NoIsotrain())
"""
SNIPPET = """
import json, pathlib, sys

code, rows, expected = json.loads(pathlib.Path("known.json").read_text())
exec(code, first := {})
line = next(line for line in code.splitlines() if line.startswith("texts = "))
exec(code.replace(line, f"texts = {rows}"), every := {})
assert len(first["logits"]) == 1 and len(every["logits"]) == len(expected)
for name, found in (("first", first), ("every", every)):
    for own, run in zip(found["logits"].tolist(), expected):
        scale = max(1, *map(abs, run))
        assert all(abs(a - b) <= 5e-6 * scale for a, b in zip(own, run)), (name, own, run)
        assert own.index(max(own)) == run.index(max(run))
"""
COMPARE = """
import sys
import torch
from sentence_transformers import SentenceTransformer

(first, second), cosines = torch.load("known.pt")
model = SentenceTransformer("folder", device="cpu")
u, v = (model.encode(texts, convert_to_tensor=True) for texts in (first, second))
found = torch.cosine_similarity(u, v)
assert (found - cosines).abs().max() <= 1e-6, found - cosines
assert "isotrain" not in sys.modules
"""


@pytest.mark.parametrize(
    ("family", "pooling"), [("tiny", "cls"), ("distilbert", "mean"), ("gpt2", "last")]
)
def test_the_code_of_the_card_gives_the_logits_of_the_run(
    made_run, export, of_the_run, monkeypatch, family, pooling
):
    run = made_run("task=rte", "isotropy=zca", f"pooling={pooling}", "metric=[]", family=family)
    folder = export(run)
    card = (folder / "README.md").read_text()
    code = card.partition("```python\n")[2].partition("```")[0]
    known = of_the_run(run)
    content = [code, known.columns, known.output.logits.tolist()]
    (folder.parent / "known.json").write_text(json.dumps(content))
    if family == "gpt2":
        printed_by(
            "-c", f"{WITHOUT}{SNIPPET}assert 'isotrain' not in sys.modules", cwd=folder.parent
        )
        return
    monkeypatch.chdir(folder.parent)
    exec(SNIPPET, {})


def test_plain_sentence_transformers_give_the_cosines_of_the_run(
    made_run, export, of_the_run, tmp_path
):
    overrides = ("task=stsb", "task.form=bi", "pooling=mean", "metric=[]", "isotropy=clip")
    run = made_run(*overrides, family="tiny")
    known = of_the_run(run)
    export(run, "sentence-transformers").rename(tmp_path / "folder")
    with torch.no_grad():
        cosines = known.model.float()(known.batch).logits[:, 0]
    torch.save((list(known.columns), cosines), tmp_path / "known.pt")
    printed_by("-c", WITHOUT + COMPARE, cwd=tmp_path)
