"""A user's own metric, layer, objective and task: new files only, nothing existing is edited."""

import json
import re
import shlex
import shutil

import pytest

from tests.processes import ROOT, python

PARTS = '''
"""Own parts."""
import torch

from isotrain.objectives.base import Objective
from isotrain.tasks.classification import Classification
from isotrain.transforms.base import RowTransform


def row_norm(x, power=1.0):
    """Mean norm of the rows."""
    return x.double().norm(dim=1).pow(power).mean()


class Halve(RowTransform):
    """Half of every row; counts what it observed."""

    has_statistics = True

    def __init__(self, width, factor=0.5):
        super().__init__(width)
        self.factor = factor
        self.register_buffer("n_observed", torch.tensor(0))

    def forward(self, x):
        return x * self.factor

    def observe(self, x):
        self.n_observed += len(x)


class Shrink(Objective):
    """Mean square of the pooled vectors."""

    n_views = 2

    def forward(self, views, labels):
        return sum(pooled.square().mean() for (pooled,) in views)


class Reversed(Classification):
    """Entailment the other way round."""

    def encode(self, rows, tokenizer):
        turned = [{**r, "sentence1": r["sentence2"], "sentence2": r["sentence1"]} for r in rows]
        return super().encode(turned, tokenizer)
'''

FILES = {
    "metric/row_norm.yaml": """
row_norm:
  function: {_target_: MODULE.row_norm, _partial_: true, power: 1.0}
""",
    "isotropy/halve.yaml": "{_target_: MODULE.Halve, _partial_: true, factor: 0.5}",
    "objective/shrink.yaml": "shrink: {_target_: MODULE.Shrink, weight: 0.1}",
    "task/reversed.yaml": """
defaults: [rte, _self_]
_target_: MODULE.Reversed
name: reversed
data_set: {folders: [rte]}
""",
}
CHOICES = (
    "metric=[isoscore,row_norm]",
    "isotropy=halve",
    "objective=[shrink]",
    "task=reversed",
    "trainer.max_steps=2",
    "trainer.log_every_n_steps=1",
    "report=true",
)


def write_files(conf, module):
    for name, text in FILES.items():
        (conf / name).parent.mkdir(parents=True, exist_ok=True)
        assert not (conf / name).exists()
        group = name.partition("/")[0]
        home = module.replace("FOLDER", {"isotropy": "transforms"}.get(group, f"{group}s"))
        (conf / name).write_text(text.replace("MODULE", home), encoding="utf-8")


def assert_all_parts_took_part(output_dir):
    (folder,) = output_dir.glob("*/halve-*")
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == "finished"
    scores = result["scores"]
    for layer in range(3):
        assert scores[f"isotropy/row_norm/layer_{layer:02d}/tokens"] > 0
    before, after = (scores[f"isotropy/row_norm/pooled/{side}"] for side in ("before", "after"))
    assert after == pytest.approx(before / 2)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    (loss, *_) = [row for row in rows if "train/shrink" in row]
    assert loss["train/loss"] == pytest.approx(
        loss["train/task_loss"] + 0.1 * loss["train/shrink"], rel=1e-5
    )
    assert "row_norm" in (folder / "report.html").read_text(encoding="utf-8")

    from safetensors.torch import load_file

    stored = load_file(folder / "weights.safetensors")
    # Two batches of 8 rows after up to eight batches before step 0.
    assert int(stored["model.transforms.pooled.n_observed"]) == 8 * 8 + 2 * 8


@pytest.fixture
def own_package(tmp_path):
    """A module and a config folder that are no part of isotrain."""
    (tmp_path / "own_parts.py").write_text(PARTS, encoding="utf-8")
    write_files(tmp_path / "conf", "own_parts")
    return tmp_path


@pytest.mark.campaign
def test_own_parts_as_new_files_of_a_checkout(tmp_path, small):
    """One python file and one yaml each; every existing file stays as it is."""
    for name in ("isotrain", "conf"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "train.py", tmp_path)
    for folder in ("metrics", "transforms", "objectives", "tasks"):
        (tmp_path / "isotrain" / folder / "own_parts.py").write_text(PARTS, encoding="utf-8")
    write_files(tmp_path / "conf", "isotrain.FOLDER.own_parts")
    found = python("train.py", *small, *CHOICES, "output_dir=runs", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert_all_parts_took_part(tmp_path / "runs")


@pytest.mark.campaign
def test_the_examples_of_the_page_run_as_they_stand(tmp_path):
    """`docs/extending.md`: seven parts in a package of one's own, and their command.

    The search-path plug-in is among the files: its options are those of `--config-dir`.
    """
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:python|yaml)\n# (\S+)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 14
    for name, text in blocks:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "mine" / "__init__.py").touch()
    rows = [
        {"sentence1": f"the cat is {n}", "sentence2": f"the dog is {n}", "label": n % 2}
        for n in range(16)
    ]
    for split in ("train", "dev"):
        file = tmp_path / "data" / "headlines" / f"{split}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        graded = [{**row, "grade": row["label"] * 4 - 0.5 * row["label"]} for row in rows]
        file = tmp_path / "data" / "closeness" / f"{split}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(row) + "\n" for row in graded))
    (block,) = re.findall(r"^```bash\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    exported, command = block.replace("\\\n", " ").splitlines()
    allowed = dict(text.split("=") for text in shlex.split(exported, comments=True)[1:])
    scores_of = {}
    for task in ("headlines", "closeness"):
        found = python(
            *("-m", *shlex.split(command.replace("task=headlines", f"task={task}"))),
            *("trainer.max_steps=2", "data.batch_size=8", "trainer.accelerator=cpu"),
            cwd=tmp_path,
            **allowed,
        )
        assert found.returncode == 0, found.stderr
        (folder,) = tmp_path.glob(f"runs/{task}/damp-shrink-*")
        scores_of[task] = json.loads((folder / "result.json").read_text())["scores"]
    assert -1 <= scores_of["closeness"]["val/spearman"] <= 1
    scores = scores_of["headlines"]
    assert scores["isotropy/row_norm/layer_01/tokens"] > 0
    assert scores["isotropy/row_norm/pooled/after"] < scores["isotropy/row_norm/pooled/before"]
    assert 0 <= scores["val/accuracy"] <= 1


INSTALLED = {  # what `pip install theirs` puts into site-packages
    "theirs/__init__.py": """
from isotrain import RowTransform

class Halve(RowTransform):
    def __init__(self, width: int, factor: float = 0.5):
        super().__init__(width)
        self.factor = factor

    def forward(self, x):
        return x * self.factor
""",
    "theirs/conf/isotropy/halve.yaml": "{_target_: theirs.Halve, _partial_: true, factor: 0.5}",
    "hydra_plugins/theirs_searchpath/__init__.py": """
from hydra.plugins.search_path_plugin import SearchPathPlugin

class TheirSearchPath(SearchPathPlugin):
    def manipulate_search_path(self, search_path):
        search_path.append("theirs", "pkg://theirs.conf")
""",
    "theirs-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n",
    "theirs-1.0.dist-info/entry_points.txt": "[isotrain.parts]\nhalve = theirs:Halve\n",
}
SESSION = """
import sys
from pathlib import Path

from isotrain.cli import main

sys.argv = ["isotrain"]


def isotrain(*words):
    print(f"exit {main([*map(str, words)])}", flush=True)


isotrain("train", "isotropy=halve", "--cfg", "job", "-p", "isotropy")
isotrain("run", "halves.yaml")
(folder,) = Path().glob("runs/rte/halve-*")
isotrain("evaluate", folder)
Path("site/theirs-1.0.dist-info/entry_points.txt").unlink()
isotrain("evaluate", folder)
"""
STUDY = """
overrides: [encoder=tiny, encoder.width=16, source=demo, task=rte, threads=1, "metric=[]"]
tasks: {rte: [trainer.max_steps=2]}
methods: {none: [], halve: [isotropy=halve]}
baseline: none
seeds: [0]
"""


@pytest.mark.slow
def test_a_package_that_is_installed_brings_options_and_its_runs_are_read_again(tmp_path):
    for name, text in INSTALLED.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_text(text)
    (tmp_path / "halves.yaml").write_text(STUDY)
    ended = python("-c", SESSION, cwd=tmp_path, PYTHONPATH=f"{tmp_path / 'site'}:{ROOT}")
    assert ended.returncode == 0, ended.stderr
    assert re.findall(r"^exit (\d)$", ended.stdout, re.MULTILINE) == [*"0002"], ended.stderr
    shown, _, evaluated, *_ = re.split(r"^exit \d$", ended.stdout, flags=re.MULTILINE)
    assert "_target_: theirs.Halve" in shown
    (folder,) = tmp_path.glob("runs/rte/halve-*")
    score = json.loads((folder / "result.json").read_text())["scores"]["val/accuracy"]
    assert re.search(rf"^val/accuracy .* {100 * score:.1f}\b", evaluated, re.MULTILINE)
    assert "theirs.Halve is of a package that a record may not run" in ended.stderr
    assert "Traceback" not in ended.stderr
