"""Files of somebody else: they run nothing, leak no secret, and write below the output folder."""

import json
import pickle
import shutil

import pytest

from isotrain.model.checkpoint import save_checkpoint
from tests.hostile.harness import TINY, contents, ended, judged
from tests.hostile.test_folders import OF_RUNS

pytestmark = pytest.mark.campaign
SECRET = "hostile-secret-7f3a"
LINE = ("train", "task=wic", *TINY, "output_dir=out")
HANDLER = "version: 1, handlers: {f: {class: logging.FileHandler, filename: CANARY, mode: w}}"
LAYER = "{_target_: isotrain.objectives.cosreg.CosReg, weight: 1.0}"
METRIC = "{function: {_target_: isotrain.metrics.isoscore.isoscore, _partial_: true}}"
CSV = "_target_: pytorch_lightning.loggers.CSVLogger, _partial_: true"
BOARD = "_target_: isotrain.training.loggers.tensorboard_logger.build_tensorboard_logger"
BOMB = (
    "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcde", "bcdef"))  # noqa: B905
    + "site: [*f,*f]"
)
NODES = (  # of an experiment file
    *(f"hydra: {{{name}: {{{HANDLER}}}}}" for name in ("job_logging", "hydra_logging")),
    "hydra: {job_logging: {version: 1, handlers: {f: {(): taken.run}}}}",
    "hydra: {job_logging: {version: 1, handlers: {f: {stream: 'ext://taken.x'}}}}",
    "hydra: {run: {dir: ELSEWHERE}}",
    "hydra: {sweep: {dir: ELSEWHERE, subdir: ../..}}",
    "hydra: {output_subdir: ../../x, job: {chdir: true}}",
    "hydra: {job: {env_set: {ISOTRAIN_ALLOW: taken}}}",
    "hydra: {job: {env_copy: [COMPANY]}}",
    "hydra: {searchpath: ['file://ELSEWHERE', 'pkg://taken']}",
    "hydra: {callbacks: {x: {_target_: taken.run}}}",
    "hydra: {launcher: {_target_: taken.run}, sweeper: {_target_: taken.run}}",
    "hydra: {help: {template: '${oc.env:COMPANY}'}}",
    "defaults: [{override /hydra/job_logging: mine}]",
    "defaults: [{/task: ../../canary}]",
    "defaults: [{override /isotropy: ../isotropy/none}]",
    "cache_dir: ELSEWHERE/cache",
    "cache_dir: ../elsewhere/cache",
    "cache_dir: ${output_dir}/../../elsewhere/cache",
    "cache_dir: ${encoder.name}\nencoder: {name: ELSEWHERE}",
    "cache_dir: ${rows}${site.0}\nsite: [/elsewhere]",
    "init_from: CANARY",
    "task: {word: '${oc.env:COMPANY}'}",
    "task: {word: '${oc.${rows}:COMPANY}', rows: env}",
    "seed: ${oc.env:COMPANY}",
    "site: ['${oc.env:COMPANY}']",
    "site: ['${oc.env:ISOTRAIN_NOT_THERE,${oc.env:COMPANY}}']",
    "seed: ${oc.decode:${oc.env:COMPANY}}",
    "seed: \"${oc.decode:'$\\\\{oc.env:COMPANY\\\\}'}\"",
    "seed: ${oc.select:hydra.runtime.cwd}",
    "seed: !!python/object/apply:os.system ['touch taken']",
    "encoder: {_target_: taken.run}",
    "encoder: {name: {_target_: os.mkdir, path: ELSEWHERE/new}}",
    "trainer: {callbacks: [{_target_: taken.run}]}",
    "trainer: {default_root_dir: ELSEWHERE/new}",
    "trainer: {profiler: {_target_: pytorch_lightning.profilers.SimpleProfiler, dirpath: /}}",
    "trainer: {profiler: simple}",
    f"objective: {{../../../elsewhere/x: {LAYER}}}",
    f"objective: {{{'x' * 300}: {LAYER}}}",
    f"metric: {{../../elsewhere/x: {METRIC}}}",
    f"logger: {{../../elsewhere/x: {{{CSV}}}}}",
    *(f"logger: {{csv: {{{CSV}, {more}}}}}" for more in ("version: ../../../../elsewhere/x",
      "version: ELSEWHERE/x", "prefix: a", "version: x, save_dir: ELSEWHERE", "name: ../x")),
    f"logger: {{tb: {{{BOARD}, _partial_: true, dir: ELSEWHERE}}}}",
    "logger: {m: {_target_: pytorch_lightning.loggers.MLFlowLogger, _partial_: true, "
    "tracking_uri: 'file:ELSEWHERE/x'}}",
    "defaults: [{override /isotropy: '${oc.env:COMPANY}'}]",
    "defaults: ['/isotropy/${oc.env:COMPANY}']",
    "defaults: [//ELSEWHERE/x, /../elsewhere/x]",
    "seed: ${hydra.job.env_set.COMPANY}\nhydra: {job: {env_copy: [COMPANY]}}",
    *(BOMB, "site: " + "[" * 5000 + "]" * 5000, "seed: 1\nseed: 2", "site: &a [*a]"),
    "<<: {seed: 3}\n? [a, b]\n: 1",
    "trainer: {devices: 100000}",
)  # fmt: skip
LOGGER = "logger: {x: {_target_: pytorch_lightning.loggers.LOGGER, _partial_: true, MORE}}"
TEXTS = (  # of an experiment file; none may run
    *(LOGGER.replace("LOGGER", "TensorBoardLogger").replace("MORE", f"sub_dir: {text}")
      for text in ("$COMPANY", "x/$COMPANY", "'~'", "~/x", "'${seed}/$COMPANY'")),
    *(LOGGER.replace("LOGGER", "MLFlowLogger").replace("MORE", f"tracking_uri: {text}")
      for text in ("'sqlite:///ELSEWHERE/x'", "'sqlite:${seed}/x'", "'https://host/'", "file:x")),
    "logger: {wandb: {_target_: isotrain.training.loggers.wandb_logger.build_wandb_logger, "
    "_partial_: true, project: x, group: null, base_url: 'https://host'}}",
    "trainer: {default_root_dir: ~/x}",
    "cache_dir: ${oc.env:ISOTRAIN_ALLOW}ELSEWHERE/x",
    "cache_dir: '${oc.env:ISOTRAIN_NOT_THERE,ELSEWHERE/x}'",
    "cache_dir: ${oc.env:ISOTRAIN_DATA_DIR}",
)  # fmt: skip
OUT = ("ELSEWHERE", "../elsewhere/new", "out/../../elsewhere/new", "out/${oc.env:COMPANY}",
       "${source.root}", "${rows}/x")  # fmt: skip
SHARED = ", ".join(f"'{text}'" for text in (*TINY, "checkpoint.final=false"))
STUDY = f"overrides: [{SHARED}, MORE]\n" + (
    "tasks: {wic: [task=wic]}\nmethods: {none: [isotropy=none]}\nbaseline: none\nseeds: [0]\n"
)
SEARCH = f"overrides: [{SHARED}, task=wic, MORE]\nsampler: grid\nn_trials: 3\n"
PLANS = {  # files of studies and searches
    **{f"out {out}": STUDY.replace("MORE", f"'output_dir={out}'") for out in OUT},
    "quoted": STUDY.replace("MORE", "'output_dir=\"ELSEWHERE/new\"'"),
    "cast": STUDY.replace("MORE", "'output_dir=str(ELSEWHERE/new)'"),
    "dict": STUDY.replace("MORE", "'+logger={x: {version: ELSEWHERE/x}}'"),
    "cache": STUDY.replace("MORE", "cache_dir=ELSEWHERE/new"),
    "method": STUDY.replace("MORE", "output_dir=out").replace("isotropy=none", "cache_dir=/x/new"),
    "names": STUDY.replace("MORE", "output_dir=out").replace("none:", "'../../elsewhere':"),
    "seed": STUDY.replace("MORE", "output_dir=out").replace("[0]", "[99999999999999]"),
    "secret": STUDY.replace("MORE", "output_dir=out, 'init_from=${oc.env:COMPANY}'"),
    "hydra": STUDY.replace("MORE", "output_dir=out, hydra.run.dir=ELSEWHERE"),
    "grid": STUDY.replace("MORE", "output_dir=out")
    + f"grid: {{optimizer.lr: {[i / 1e6 for i in range(1, 9001)]}}}\n",
    "grid out": STUDY.replace("MORE", "seed=0") + "grid: {output_dir: [ELSEWHERE/x]}\n",
    "bomb": BOMB + "\n" + STUDY.replace("MORE", "output_dir=out"),
    "deep": "overrides: " + "- " * 5000,
    "space": SEARCH.replace("MORE", "output_dir=out")
    + "space: {seed: {low: 1, high: 1000000000000, step: 1}}\n",
    "space out": SEARCH.replace("MORE", "seed=0") + "space: {output_dir: [ELSEWHERE/x, y]}\n",
    "trials": SEARCH.replace("MORE", "output_dir=out").replace(" 3", " 1" + "0" * 30)
    + "space: {optimizer.lr: [0.1, 0.2]}\n",
}
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
FLAGS = ("--experimental-rerun=x.pickle", "--resolve", "--run", "-cd=/tmp", "--info",
    "--config-path=..", "--config-name=../canary", "--package=taken", "--hydra-help",
    "--shell-completion", "hydra.run.dir=ELSEWHERE", "+hydra.searchpath=[pkg://taken]",
    "hydra/launcher=taken", "~hydra", "hydra={}", "hydra.job_logging.handlers.f.filename=CANARY",
    "+experiment=../../canary")  # fmt: skip
SWEEPS = ("output_dir: [ELSEWHERE/a, b]", "output_dir: choice(ELSEWHERE/a,ELSEWHERE/b)",
    "cache_dir: ELSEWHERE/a", "seed: range(0,1e12)",
    "seed: ['${oc.env:COMPANY}', 1]", BOMB)  # fmt: skip


def of_experiment(text, *line):
    """A command with somebody's configuration folder, and its files."""
    mine = "# @package _global_\n" + text + "\n"
    log = {"files/hydra/job_logging/mine.yaml": HANDLER.replace(", h", "\nh")}
    command = [*LINE[:-1], *line, "--config-dir", "files", "experiment=mine"]
    return command, {"files/experiment/mine.yaml": mine, **log}


CASES = {
    **{f"node {k}": of_experiment(text, "output_dir=out") for k, text in enumerate(NODES)},
    **{f"text {k}": of_experiment(text, "output_dir=out") for k, text in enumerate(TEXTS)},
    **{f"output {out}": of_experiment(f"output_dir: {out}") for out in OUT},
    **{
        f"{command} {name}": ([command, "mine.yaml"], {"mine.yaml": text})
        for name, text in PLANS.items()
        for command in ("run", "report", "status")
    },
    **{
        f"name {ascii(name)[:20]}": (
            [command, "m.yaml", "--name", name],
            {"m.yaml": PLANS["hydra"]},
        )
        for name in ("../../elsewhere/x", "..", "/abs", "a/b", "\x1b[31m", "a" * 400)
        for command in ("run", "report")
    },
    **{f"flag {flag}": ([*LINE, flag], {}) for flag in FLAGS},
    **{
        f"sweep {text[:30]}": (
            [*LINE[:-1], "-m", "sweep=mine", "--config-dir", "files"],
            {"files/sweep/mine.yaml": text},
        )
        for text in SWEEPS
    },
}
REFUSED = ("text", "output", "name", "flag", "sweep")  # kinds of cases of which none may run


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

    def tried(command, files=(), refused=False):
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
        judged(record_property, shown, end, "to be refused" * refused)

    return tried


@pytest.mark.parametrize("case", CASES)
def test_a_foreign_file(case, tried):
    tried(*CASES[case], refused=case.startswith(REFUSED))


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("command", ["run", "evaluate", "export", "report", "train"])
def test_a_record(name, command, tried, tmp_path):
    (file,) = (tmp_path / "place").glob("whole/*/*/result.json")
    text = json.dumps(merged(json.loads(file.read_text()), RECORDS[name]))
    file.write_text(text.replace("ELSEWHERE", str(tmp_path / "elsewhere")))
    line = {"run": ["run", str(file)], "train": [*LINE, f"init_from={file.parent}"]}
    tried(line.get(command, [command, str(file.parent)]))


@pytest.mark.parametrize("name", ["last.ckpt", "resume.ckpt", "predictions/x.npz", "result.json"])
@pytest.mark.parametrize("command", ["evaluate", "export", "report"])
@pytest.mark.parametrize("how", ["pickle", "link"])
def test_code_or_links_in_a_run(name, command, how, tried, tmp_path):
    (run,) = (tmp_path / "place").glob("whole/*/*/")
    file = run / name
    file.parent.mkdir(exist_ok=True)
    if how == "link":
        for target in (file, run / "report.html", run / "export", run / "figures"):
            shutil.rmtree(target, ignore_errors=True)
            target.unlink(missing_ok=True)
            folder = tmp_path / "elsewhere"
            target.symlink_to(tmp_path / "canary" if target.suffix else folder)
    elif name.endswith("ckpt"):
        save_checkpoint({"state_dict": Payload()}, file)  # its digest is right
    else:
        file.write_bytes(pickle.dumps(Payload()))
    tried([command, str(run)])


class Payload:
    def __reduce__(self):
        import os

        return os.system, ("touch taken",)


def linked(path, tmp_path):
    """Put a link in place of a file or folder: to the canary, or to its content moved elsewhere."""
    target = tmp_path / "elsewhere" / path.name
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.move(path, target)
    elif path.suffix or path.name in (".lock", "lock", "wandb_id"):
        path.unlink(missing_ok=True)
        target = tmp_path / "canary"
    else:
        target.mkdir()
    path.symlink_to(target)


OF_RUN = (
    *(".lock", "config.yaml", "last.ckpt.part", "resume.ckpt.part", "metrics.jsonl", "wandb_id"),
    *("result.json", "snapshots", "predictions", "figures", "tensorboard", "report.html"),
    *("", "..", "../../.cache"),
)
WRITES = {  # commands of a run's folder
    "run": ("stopped", lambda run: ["run", f"{run}/result.json"]),
    "resume": ("stopped", lambda run: ["train", *OF_RUNS, "output_dir=stopped"]),
    "rerun": ("whole", lambda run: ["train", *OF_RUNS, "output_dir=whole", "rerun=true"]),
    "logs": ("whole", lambda run: ["train", *OF_RUNS, "output_dir=whole", "rerun=true",
                                   "logger=[tensorboard,wandb]", "cache_dir=whole/.cache"]),
    **{name: ("whole", lambda run, name=name: [name, str(run)])
       for name in ("report", "evaluate", "export", "status", "cancel")},
}  # fmt: skip


@pytest.mark.parametrize("name", OF_RUN)
@pytest.mark.parametrize("command", WRITES)
def test_links_in_a_run(name, command, tried, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    if name in ("", "..") and command in ("report", "export"):
        pytest.skip("the command line itself names this folder, through the link")
    folder, line = WRITES[command]
    (file,) = (tmp_path / "place").glob(f"{folder}/*/*/result.json")
    run = file.parent
    linked(run.parent if name == ".." else run.parents[1] / ".cache" if "/" in name
           else run / name, tmp_path)  # fmt: skip
    tried(line(run.relative_to(tmp_path / "place")))


@pytest.mark.parametrize("name", ["collected", "collected/runs.csv", "collected/groups.md"])
@pytest.mark.parametrize("command", ["collect", "report"])
def test_links_of_a_collection(name, command, tried, tmp_path):
    linked(tmp_path / "place/whole" / name, tmp_path)
    tried([command, "whole"], refused=name == "collected")


OF_PLAN = (
    *("lock", "jobs", "logs", "study.json", "search.json", "sweep.json", "plan.yaml", "study.db"),
    *("table.md", "study.html", "figures", "runs.csv", "", ".."),
    *("jobs/wic-none-seed0.json", "logs/wic-none-seed0.log"),
    *("jobs/trial-0-seed0.json", "logs/trial-0-seed0.log"),
)
OF_PLANS = {
    "studies": STUDY.replace("MORE", "output_dir=out"),
    "tune": SEARCH.replace("MORE", "output_dir=out") + "space: {optimizer.lr: [0.1, 0.2]}\n",
}


@pytest.mark.parametrize("name", OF_PLAN)
@pytest.mark.parametrize("kind", OF_PLANS)
@pytest.mark.parametrize("command", ["run", "report", "status", "cancel"])
def test_links_of_a_plan(name, kind, command, tried, tmp_path):
    folder = tmp_path / "place/out" / kind / "mine"
    folder.mkdir(parents=True)
    linked(folder.parent if name == ".." else folder / name, tmp_path)
    tried([command, "mine.yaml"], {"mine.yaml": OF_PLANS[kind]})


GIVEN = {"overrides": ["task=wic", *TINY, "seed=${oc.env:COMPANY}"], "config_dir": None}
NAMED = GIVEN | {"file": "mine.yaml", "name": "mine"}
ORIGINS = {
    "studies": ("study.json", NAMED | {"history": [], "shared": {}, "runs": {}}),
    "tune": (
        "search.json",
        NAMED | {"n_trials": 2, "objective": "val/x", "direction": "max", "monitored": None}
        | {"data": {}},
    ),
    "sweeps": ("sweep.json", GIVEN),
}  # fmt: skip


@pytest.mark.parametrize("kind", ORIGINS)
@pytest.mark.parametrize("command", ["run", "report", "status", "cancel"])
@pytest.mark.parametrize(
    "change", ["overrides", "cache_dir=ELSEWHERE/x", "output_dir=ELSEWHERE/x", "config_dir", "file"]
)
def test_the_folder_of_a_plan(kind, command, change, tried):
    name, content = ORIGINS[kind]
    seeded, own = "seed=${oc.env:COMPANY}", [*GIVEN["overrides"][:-1]]
    changed = {
        "overrides": {},
        "config_dir": {"overrides": own, "config_dir": "ELSEWHERE"},
        "file": {"overrides": own, "file": "ELSEWHERE/mine.yaml"} if "file" in content else {},
    }.get(change, {"overrides": [*own, change]})
    yaml = OF_PLANS.get(kind, "").replace("[0]", "[0, '${oc.env:COMPANY}']")
    files = {f"out/{kind}/mine/{name}": json.dumps(content | changed), "mine.yaml": yaml}
    tried([command, f"out/{kind}/mine"], files, refused=seeded in str(content | changed))
