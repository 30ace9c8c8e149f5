"""Data of somebody else: they run nothing, leak no secret, and nothing is written elsewhere.

A configuration is code and has no case here; a run folder, a checkpoint and a plan's folder have.
"""

import json
import pickle
import shutil

import pytest

from isotrain.model.checkpoint import save_checkpoint
from isotrain.runs.files import WEIGHTS_FILE, read_result, sha256_of, write_result
from tests.hostile.harness import TINY, contents, ended, judged

pytestmark = pytest.mark.campaign
SECRET = "hostile-secret-7f3a"
LINE = ("train", "task=wic", *TINY, "output_dir=out")
OUT = ("ELSEWHERE", "../elsewhere/new", "out/../../elsewhere/new", "out/${oc.env:COMPANY}",
       "${source.root}", "${rows}/x")  # fmt: skip
RECORDS = {  # of a result.json, what is changed
    **{f"out {out}": {"config": {"output_dir": out}} for out in OUT},
    "cache": {"config": {"cache_dir": "ELSEWHERE/new"}},
    **{method[:9]: {"method": method} for method in ("..", "../../elsewhere/x", "x" * 5000, "")},
    "target": {"config": {"encoder": {"_target_": "taken.run"}}},
    "logger": {"config": {"logger": {"x": {"_target_": "taken.run", "version": "/x"}}}},
    "overrides": {"overrides": ["--config-dir=ELSEWHERE", "output_dir=ELSEWHERE/new"]},
    "search": {"search": "../../elsewhere"},
    "threads": {"config": {"threads": 10**9}},
    "seed": {"config": {"seed": "${oc.env:COMPANY}"}},
    "name": {"config": {"task": {"word": "${oc.env:COMPANY}"}}},
    "refers": {"overrides": ["task=wic", "seed=${oc.env:COMPANY}"]},
    "adds": {"overrides": ["task=wic", "+trainer.x=${oc.env:COMPANY}"]},
    "groups": {"overrides": ["task=${oc.env:COMPANY}"]},
    "logs": {"overrides": ["logger={x: {_target_: '${oc.env:COMPANY}'}}"]},
}


def merged(content, changes):
    for key, value in changes.items():
        same = isinstance(value, dict) and isinstance(content.get(key), dict)
        content[key] = merged(content[key], value) if same else value
    return content


@pytest.fixture
def tried(tmp_path, hostile_runs, record_property):
    """`tried(command, files)`: give it beside foreign files, and look at all that has changed."""
    place, elsewhere, home = tmp_path / "place", tmp_path / "elsewhere", tmp_path / "home"
    for folder in (place, elsewhere, home):
        folder.mkdir()
    for name in ("whole", "stopped"):
        shutil.copytree(hostile_runs / name, place / name)
    (tmp_path / "canary").write_text("alive")
    (place / "taken.py").write_text("open('taken', 'w')\ndef run(*a, **k): pass\nx = None\n")
    # What a command may write: its output folders, its log, and what libraries cache
    own = [place / name for name in ("out", "whole", "stopped", "runs")]
    free = (*own, tmp_path / "place.log", home)

    def tried(command, files=()):
        def spelled(text):
            for name in ("CANARY", "ELSEWHERE"):
                text = text.replace(name, str(tmp_path / name.lower()))
            return text

        for name, text in dict(files).items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(spelled(text))
        command = [spelled(word) for word in command]
        before = contents(tmp_path, *free)
        environment = {"COMPANY": SECRET, "HOME": str(home), "PYTHONPATH": str(place)}
        end = ended(command, place, environment)
        after = contents(tmp_path, *free)
        wrong = sorted(k for k in before.keys() | after.keys() if before.get(k) != after.get(k))
        inside = [path for folder in own for path in folder.rglob("*")]
        wrong += [p for p in inside if p.is_file() and SECRET.encode() in p.read_bytes()]
        wrong += [SECRET] * (SECRET in end.text or any(SECRET in str(path) for path in inside))
        if wrong and end.kind != "hang":
            end = end._replace(kind="silent", text=f"{end.text}\ntouched or told: {wrong[:5]}")
        shown = f"{' '.join(command)}  # {' | '.join(map(ascii, dict(files).values()))[:300]}"
        judged(record_property, shown, end)

    return tried


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("command", ["status", "evaluate", "export", "report", "train"])
def test_a_record(name, command, tried, tmp_path):
    (file,) = (tmp_path / "place").glob("whole/*/*/result.json")
    text = json.dumps(merged(json.loads(file.read_text()), RECORDS[name]))
    file.write_text(text.replace("ELSEWHERE", str(tmp_path / "elsewhere")))
    line = {"train": [*LINE, f"init_from={file.parent}"]}
    tried(line.get(command, [command, str(file.parent)]))


@pytest.mark.parametrize(
    "name", ["weights.safetensors", "resume.ckpt", "predictions/x.npz", "result.json"]
)
@pytest.mark.parametrize("command", ["evaluate", "export", "report"])
def test_code_in_a_run(name, command, tried, tmp_path):
    (run,) = (tmp_path / "place").glob("whole/*/*/")
    file = run / name
    file.parent.mkdir(exist_ok=True)
    if name == "resume.ckpt":
        save_checkpoint({"state_dict": Payload()}, file)  # its digest is right
    else:
        file.write_bytes(pickle.dumps(Payload()))
        if name == WEIGHTS_FILE:  # the digest is right
            write_result(run, read_result(run) | {"weights_sha256": sha256_of(file)})
    tried([command, str(run)])


class Payload:
    def __reduce__(self):
        import os

        return os.system, ("touch taken",)


CHANGES = {  # of the record of a study
    **{
        f"runs {out}": {"runs": [{"folder": out}]} for out in ("ELSEWHERE", "../../../../elsewhere")
    },
    **{f"name {name[:9]}": {"name": name} for name in ("../../elsewhere/x", "x" * 5000, "")},
    "task": {"runs": [{"task": "../../elsewhere/x"}]},
    "overrides": {"overrides": ["output_dir=ELSEWHERE/x", "seed=${oc.env:COMPANY}"]},
    "config_dir": {"config_dir": "ELSEWHERE"},
    "file": {"file": "ELSEWHERE/mine.yaml"},
    "question": {"study": {"question": "${oc.env:COMPANY} <script>alert(1)</script> \x1b[31m"}},
    "source": {"study": {"published": {"tasks": {}, "source": "${oc.env:COMPANY}"}}},
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("command", ["report", "status"])
def test_the_folder_of_a_study(name, command, tried, tmp_path, hostile_plans):
    shutil.copytree(hostile_plans / "studies", tmp_path / "place", dirs_exist_ok=True)
    file = tmp_path / "place/out/studies/mine/study.json"
    content, changes = json.loads(file.read_text()), dict(CHANGES[name])
    for run in changes.pop("runs", ()):
        content["runs"] = [one | run for one in content["runs"]]
    text = json.dumps(merged(content, changes))
    file.write_text(text.replace("ELSEWHERE", str(tmp_path / "elsewhere")))
    tried([command, "out/studies/mine"])
