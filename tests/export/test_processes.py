"""Exports in processes of their own: without isotrain, and with it."""

import json

import pytest
import torch

from tests.processes import ROOT, printed_by

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
import json, sys

code, rows, expected = json.load(open("known.json"))
exec(code, first := {})
line = next(line for line in code.splitlines() if line.startswith("texts = "))
exec(code.replace(line, f"texts = {rows}"), every := {})
assert len(first["logits"]) == 1 and len(every["logits"]) == len(expected)
for name, found in (("first", first), ("every", every)):
    for own, run in zip(found["logits"].tolist(), expected):
        scale = max(1, *map(abs, run))
        assert all(abs(a - b) <= 5e-6 * scale for a, b in zip(own, run)), (name, own, run)
        assert own.index(max(own)) == run.index(max(run))
assert "isotrain" not in sys.modules
"""
COMPARE = """
import sys
import torch
from sentence_transformers import SentenceTransformer

(first, second), cosines = torch.load("known.pt")
model = SentenceTransformer("folder", device="cpu", trust_remote_code=TRUSTED)
u, v = (model.encode(texts, convert_to_tensor=True) for texts in (first, second))
found = torch.cosine_similarity(u, v)
assert (found - cosines).abs().max() <= 1e-6, found - cosines
assert ("isotrain" in sys.modules) == TRUSTED
"""


@pytest.mark.parametrize(
    ("family", "pooling"), [("tiny", "cls"), ("distilbert", "mean"), ("gpt2", "last")]
)
def test_the_code_of_the_card_gives_the_logits_of_the_run(
    made_run, export, of_the_run, tmp_path, family, pooling
):
    run = made_run("task=rte", "isotropy=zca", f"pooling={pooling}", "metric=[]", family=family)
    folder = export(run)
    card = (folder / "README.md").read_text()
    code = card.partition("```python\n")[2].partition("```")[0]
    known = of_the_run(run)
    content = [code, known.columns, known.output.logits.tolist()]
    (folder.parent / "known.json").write_text(json.dumps(content))
    printed_by("-c", WITHOUT + SNIPPET, cwd=folder.parent)


@pytest.fixture
def elsewhere(made_run, export, of_the_run, tmp_path):
    """`elsewhere(overrides)`: a place with an export in `folder` and the cosines of its run."""

    def export_there(*overrides):
        run = made_run(
            *("task=stsb", "task.form=bi", "pooling=mean", "metric=[]", *overrides), family="tiny"
        )
        known, place = of_the_run(run), tmp_path / "elsewhere"
        place.mkdir()
        export(run, "sentence-transformers").rename(place / "folder")
        with torch.no_grad():
            cosines = known.model.float()(known.batch).logits[:, 0]
        torch.save((list(known.columns), cosines), place / "known.pt")
        return place

    return export_there


@pytest.mark.parametrize("isotropy", ["none", "clip"])
def test_plain_sentence_transformers_give_the_cosines_of_the_run(elsewhere, isotropy):
    place = elsewhere(f"isotropy={isotropy}")
    printed_by("-c", "TRUSTED=False\n" + WITHOUT + COMPARE, cwd=place)


def test_sentence_transformers_take_the_layer_of_isotrain_where_it_is_installed(elsewhere):
    place = elsewhere("isotropy=cluster_pca", "site=[tokens]")
    printed_by("-c", "TRUSTED=True\n" + COMPARE, cwd=place, PYTHONPATH=str(ROOT))
