"""The notebook of the docs runs from its first to its last cell, on a CPU without a network."""

import re
import time

import nbformat
import pytest
from nbclient import NotebookClient

from tests.docs_pages import ROOT
from tests.test_docs import anchors

PATH = ROOT / "docs" / "tour.ipynb"


def cells(kind):
    return [cell for cell in nbformat.read(PATH, as_version=4).cells if cell.cell_type == kind]


def test_it_is_stored_without_outputs_and_its_links_lead_somewhere():
    assert PATH.stat().st_size < 100_000
    assert all(not cell.outputs and cell.execution_count is None for cell in cells("code"))
    links = re.findall(r"\]\(([^)]+)\)", "".join(cell.source for cell in cells("markdown")))
    assert len(links) >= 5
    for path, _, anchor in (link.partition("#") for link in links):
        assert (PATH.parent / path).is_file(), path
        assert not anchor or anchor in anchors(PATH.parent / path)


CHECKS = """
assert abs(metrics["mean cosine (0 = isotropic)"](y)) < 0.05 < mean_cosine(x)
assert [*tables["none"].index] == [*tables["cluster_pca"].index] == [0, 20, 40, 60]
assert tables["cluster_pca"]["pooled/after"].max() < 0.4 < tables["none"].min().min()
assert len(table.columns) == 5 and len(scores) == 2
"""


@pytest.mark.campaign
@pytest.mark.filterwarnings("default")  # of the kernel
def test_every_cell_runs_within_two_minutes_and_shows_isotropy(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(PATH, as_version=4)
    assert "matplotlib" not in str(notebook)
    notebook.cells.append(nbformat.v4.new_code_cell(CHECKS))
    start = time.monotonic()
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": tmp_path}}).execute()
    assert time.monotonic() - start < 120
    last = notebook.cells[-3].outputs[-1]["data"]["text/html"]
    assert "layer_02/mean" in last
    assert "cluster_pca" in last
    assert sum(len(str(cell.get("outputs", ""))) for cell in notebook.cells) < 100_000
