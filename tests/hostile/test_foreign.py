"""Files of somebody else: they run nothing, tell no secret, and write below the output folder."""

from __future__ import annotations

import json
import pickle
import shutil

import pytest
import torch

from tests.hostile.harness import TINY, contents, ended, judged

pytestmark = pytest.mark.campaign
GLOBAL = "# @package _global_\n"
CSV = "pytorch_lightning.loggers.CSVLogger"
BOARD = "isotrain.training.loggers.tensorboard_logger.build_tensorboard_logger"
SECRET = "hostile-secret-7f3a"
MINE = ("train", "task=wic", *TINY, "--config-dir", "files", "experiment=mine")
HANDLER = "{{version: 1, handlers: {{f: {{{}}}}}, root: {{handlers: [f]}}}}"
BOMB = (
    "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(
        f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcde", "bcdef", strict=True)
    )
    + "site: [*f,*f]"
)
NODES = (  # of an experiment file that is not ours
    "hydra: {job_logging: "
    + HANDLER.format("class: logging.FileHandler, filename: CANARY, mode: w")
    + "}",
    "hydra: {job_logging: "
    + HANDLER.format("class: logging.StreamHandler, stream: 'ext://taken.x'")
    + "}",
    "hydra: {hydra_logging: "
    + HANDLER.format("class: logging.handlers.RotatingFileHandler, filename: CANARY, maxBytes: 1")
    + "}",
    "hydra: {job_logging: " + HANDLER.format("(): taken.run") + "}",
    "hydra: {run: {dir: ELSEWHERE}}",
    "hydra: {sweep: {dir: ELSEWHERE, subdir: ../..}}",
    "hydra: {output_subdir: ../../x, run: {dir: ELSEWHERE}, job: {chdir: true}}",
    "hydra: {job: {env_set: {ISOTRAIN_ALLOW: taken}}}",
    "hydra: {job: {env_copy: [COMPANY]}}",
    "hydra: {searchpath: ['file://ELSEWHERE', 'pkg://taken']}",
    "hydra: {callbacks: {x: {_target_: taken.run}}}",
    "hydra: {launcher: {_target_: taken.run}, sweeper: {_target_: taken.run}}",
    "hydra: {help: {template: '${oc.env:COMPANY}'}}",
    "defaults: [{override /hydra/job_logging: mine}]",
    "defaults: [{/task: ../../canary}]",
    "output_dir: ELSEWHERE",
    "output_dir: ../elsewhere/new",
    "output_dir: out/../../elsewhere/new",
    "cache_dir: ELSEWHERE/cache",
    "cache_dir: ../elsewhere/cache",
    "init_from: CANARY",
    "task: {word: '${oc.env:COMPANY}'}",
    "seed: ${oc.env:COMPANY}",
    "output_dir: out/${oc.env:COMPANY}",
    "site: ['${oc.env:COMPANY}']",
    "seed: ${oc.decode:${oc.env:COMPANY}}",
    "seed: !!python/object/apply:os.system ['touch taken']",
    "encoder: {_target_: taken.run}",
    "encoder: {name: {_target_: os.mkdir, path: ELSEWHERE/new}}",
    "trainer: {callbacks: [{_target_: taken.run}]}",
    "trainer: {default_root_dir: ELSEWHERE/new}",
    "trainer: {profiler: {_target_: pytorch_lightning.profilers.SimpleProfiler, dirpath: /}}",
    "trainer: {profiler: simple}",
    "logger: {csv: {_target_: CSV, _partial_: true, version: ../../../../elsewhere/x}}",
    "logger: {csv: {_target_: CSV, _partial_: true, version: ELSEWHERE/x}}",
    "logger: {csv: {_target_: CSV, _partial_: true, prefix: a}}",
    "logger: {csv: {_target_: CSV, _partial_: true, version: x, save_dir: ELSEWHERE}}",
    "logger: {tb: {_target_: BOARD, _partial_: true, dir: ELSEWHERE}}",
    BOMB,
    "site: " + "[" * 5000 + "]" * 5000,
    "seed: 1\nseed: 2",
    "site: &a [*a]",
)
STUDY = """overrides: [{}, {}]
tasks: {{{}: [task=wic]}}
arms: {{{}: [isotropy=none]}}
baseline: {}
seeds: [{}]
"""
SHARED = ", ".join(f"'{text}'" for text in (*TINY, "checkpoint.final=false"))
STUDIES = {
    "abs": STUDY.format(SHARED, "output_dir=ELSEWHERE/new", "wic", "none", "none", 0),
    "up": STUDY.format(SHARED, "output_dir=../elsewhere/new", "wic", "none", "none", 0),
    "cache": STUDY.format(SHARED, "cache_dir=ELSEWHERE/new", "wic", "none", "none", 0),
    "names": STUDY.format(SHARED, "output_dir=out", "../../elsewhere", "..", "..", 0),
    "seed": STUDY.format(SHARED, "output_dir=out", "wic", "none", "none", 99999999999999),
    "secret": STUDY.format(SHARED, "'init_from=${oc.env:COMPANY}'", "wic", "none", "none", 0),
    "..": STUDY.format(SHARED, "output_dir=out", "wic", "none", "none", 0),
    "grid": STUDY.format(SHARED, "output_dir=out", "wic", "none", "none", 0)
    + f"grid: {{optimizer.lr: {[i / 1e6 for i in range(1, 9001)]}}}\n",
    "bomb": BOMB + "\n" + STUDY.format(SHARED, "output_dir=out", "wic", "none", "none", 0),
}
JOBS = {  # of result.json given to `run` or `evaluate`, what is changed
    "out": {"config": {"output_dir": "ELSEWHERE/new"}},
    "up": {"config": {"output_dir": "../elsewhere/new"}},
    "cache": {"config": {"cache_dir": "ELSEWHERE/new"}},
    "arm": {"arm": ".."},
    "arm2": {"arm": "../../elsewhere/x"},
    "arm3": {"arm": "x" * 5000},
    "env": {"config": {"output_dir": "out/${oc.env:COMPANY}"}},
    "target": {"config": {"encoder": {"_target_": "taken.run"}}},
    "overrides": {"overrides": ["--config-dir=ELSEWHERE", "output_dir=ELSEWHERE/new"]},
}


class Payload:
    def __reduce__(self):
        import os

        return os.system, ("touch taken",)


def merged(content, changes):
    for key, value in changes.items():
        same = isinstance(value, dict) and isinstance(content.get(key), dict)
        content[key] = merged(content[key], value) if same else value
    return content


@pytest.fixture
def tried(tmp_path, hostile_runs, record_property):
    """`tried(command, files)`: give it beside foreign files, and look at all that has changed."""
    place, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    for folder in (place, elsewhere, tmp_path / "home"):
        folder.mkdir()
    shutil.copytree(hostile_runs / "whole", place / "out")
    (tmp_path / "canary").write_text("alive")
    (place / "taken.py").write_text("open('taken', 'w')\ndef run(*a, **k): pass\nx = None\n")

    def spelled(text):
        for name in ("CANARY", "ELSEWHERE"):
            text = text.replace(name, str(tmp_path / name.lower()))
        return text.replace(" CSV", f" {CSV}").replace(" BOARD", f" {BOARD}")

    mine = (place / "out", tmp_path / "place.log", tmp_path / "home")  # caches of libraries

    def tried(command, files=()):
        for name, text in dict(files).items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(spelled(text))
        command = [spelled(word) for word in command]
        before = contents(tmp_path, *mine)
        environment = {"COMPANY": SECRET, "HOME": str(tmp_path / "home"), "PYTHONPATH": str(place)}
        end = ended(command, place, environment)
        after = contents(tmp_path, *mine)
        changed = [k for k in before.keys() | after.keys() if before.get(k) != after.get(k)]
        if changed:
            end = end._replace(kind="silent", text=f"{end.text}\ntouched {changed[:5]}")
        told = [
            p
            for p in (place / "out").rglob("*")
            if p.is_file() and SECRET.encode() in p.read_bytes()
        ]
        if SECRET in end.text or told:
            end = end._replace(kind="silent", text=f"the secret is told {told[:3]}\n{end.text}")
        shown = f"{' '.join(command)}  # {' | '.join(map(ascii, dict(files).values()))[:300]}"
        return judged(record_property, shown, end)

    return tried


@pytest.mark.parametrize("number", range(len(NODES)))
@pytest.mark.parametrize("out", [(), ("output_dir=out",)], ids=["their output", "ours"])
def test_a_config_folder(number, out, tried):
    files = {
        "files/experiment/mine.yaml": GLOBAL + NODES[number] + "\n",
        "files/hydra/job_logging/mine.yaml": HANDLER.format(
            "class: logging.FileHandler, filename: CANARY"
        )
        .replace("{{", "{")
        .replace("}}", "}"),
    }
    if not out and not NODES[number].startswith("output_dir"):
        pytest.skip("the same as with ours")
    tried([*MINE, *out], files)


@pytest.mark.parametrize("flag", ["--experimental-rerun=x.pickle", "--resolve", "--run", "-cd=/tmp",
    "--info", "--config-path=..", "--config-name=../canary", "--package=taken", "--hydra-help",
    "--shell-completion", "hydra.run.dir=ELSEWHERE", "+hydra.searchpath=[pkg://taken]",
    "hydra/launcher=taken", "~hydra", "hydra={}",
    "hydra.job_logging.handlers.f.filename=CANARY"])  # fmt: skip
def test_a_flag_of_hydra(flag, tried):
    end = tried(["train", "task=wic", *TINY, "output_dir=out", flag])
    assert end.kind == "refused"


@pytest.mark.parametrize("name", list(STUDIES))
@pytest.mark.parametrize("command", ["run", "report", "status"])
def test_a_study(name, command, tried):
    tried([command, f"{name}.yaml"], {f"{name}.yaml": STUDIES[name]})


@pytest.mark.parametrize(
    "option", ["../../elsewhere/x", "..", "/abs", "a/b", "\x1b[31m", "a" * 400]
)
def test_a_name(option, tried):
    end = tried(["run", "mine.yaml", "--name", option], {"mine.yaml": STUDIES[".."]})
    assert end.kind == "refused"


@pytest.mark.parametrize("name", list(JOBS))
@pytest.mark.parametrize("command", ["run", "evaluate", "export", "report", "train"])
def test_a_record(name, command, tried, tmp_path):
    (file,) = (tmp_path / "place").glob("out/*/*/result.json")
    text = json.dumps(merged(json.loads(file.read_text()), JOBS[name]))
    for key in ("CANARY", "ELSEWHERE"):
        text = text.replace(key, str(tmp_path / key.lower()))
    file.write_text(text)
    line = {
        "run": ["run", str(file)],
        "train": ["train", "task=wic", *TINY, f"init_from={file.parent}", "output_dir=out"],
    }
    tried(line.get(command, [command, str(file.parent)]))


@pytest.mark.parametrize("name", ["last.ckpt", "resume.ckpt", "predictions/x.npz", "result.json"])
@pytest.mark.parametrize("command", ["evaluate", "export", "report"])
@pytest.mark.parametrize("how", ["pickle", "link"])
def test_code_or_links_in_a_run(name, command, how, tried, tmp_path):
    (run,) = (tmp_path / "place").glob("out/*/*/")
    file = run / name
    file.parent.mkdir(exist_ok=True)
    if how == "link":
        for target in (file, run / "report.html", run / "export", run / "figures"):
            shutil.rmtree(target, ignore_errors=True)
            target.unlink(missing_ok=True)
            folder = tmp_path / "elsewhere"
            target.symlink_to(tmp_path / "canary" if target.suffix else folder)
    elif name.endswith("ckpt"):
        torch.save({"state_dict": Payload()}, file)
    else:
        file.write_bytes(pickle.dumps(Payload()))
    tried([command, str(run)])
