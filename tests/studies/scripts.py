"""A study and a search, and the scripts that play their runs."""

from __future__ import annotations

from isotrain.config.schema import NOT_CONTENT

STUDY = """
overrides: [encoder=tiny, source=demo]
tasks: {rte: [task=rte]}
arms: {none: [isotropy=none], mean: [isotropy=mean]}
baseline: none
seeds: [0, 1, 2]
"""
SEARCH = """
overrides: [task=rte, encoder=tiny, source=demo]
space:
  optimizer.lr: {low: 1.0e-5, high: 1.0e-1, log: true}
startup: 3
pruner: none
n_trials: 4
"""
# It imports nothing of isotrain, which takes longer than all else (`python -I -S`), and finds the
# folder of its run by itself: `job`, `cfg`, `name` and `folder` are there for what follows.
OPENING = (
    f"""
NOT_CONTENT = {NOT_CONTENT}
"""
    + r"""
import hashlib, json, os, signal, sys, time
from pathlib import Path

def note(what):
    with open(os.environ["JOURNAL"], "a") as journal:
        journal.write(f"{what} {Path(sys.argv[1]).stem} {os.getpid()}\n")

def read_job():
    text = Path(sys.argv[1]).read_text()
    config = json.loads(text)["config"]
    text = text.replace('"${seed}"', str(config["seed"]))
    return json.loads(text.replace("${output_dir}", config["output_dir"]))

def content(config, path=""):
    found = {}
    for name, value in config.items():
        key = f"{path}{name}"
        if key not in (*NOT_CONTENT, "source.root"):
            is_group = isinstance(value, dict) and value
            found |= content(value, f"{key}.") if is_group else {key: value}
    return found

def digits(of):
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()

def folder_of(job):
    name = digits([digits(content(job["config"])), os.environ.get("DATA", "demo-v1-seed0")])[:10]
    return Path(job["config"]["output_dir"]) / "rte" / f"{job['arm']}-{name}"
"""
)
# Plays a run of the study: notes what it does, and leaves a result like that of a run.
JOB = (
    OPENING
    + r"""
def stop(*_):
    note("stop")
    sys.exit(143)

signal.signal(signal.SIGTERM, stop if "STUBBORN" not in os.environ else signal.SIG_IGN)
note("start")
job = read_job()
cfg, arm, seed = job["config"], job["arm"], job["config"]["seed"]
name, folder = Path(sys.argv[1]).stem, folder_of(job)
deadline = time.monotonic() + 60
if name in os.environ.get("HOLD", "").split(","):
    while not Path(os.environ["JOURNAL"]).with_name("go").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
if "MEET" in os.environ:  # go on when a second run is at work
    while True:
        starts = [li for li in open(os.environ["JOURNAL"]) if li.startswith("start")]
        own = [li.split()[1] for li in starts].index(name)
        if len(starts) >= own + 2 - own % 2:
            break
        assert time.monotonic() < deadline
        time.sleep(0.02)
if name in os.environ.get("FAIL", "").split(","):
    print("first line", "the reason", sep="\n")
    sys.exit(3)
assert os.environ["OMP_NUM_THREADS"] == str(cfg["threads"])
accuracy = 0.5 + 0.01 * seed**2 + (0.1 + 0.002 * seed if arm == "mean" else 0.0)
isotropy = {
    f"isotropy/{metric}/{place}": value * (1 + seed / 10)
    for place in ("layer_01/tokens", "layer_02/tokens", "layer_02/cls", "pooled/before",
                  "pooled/after")
    for metric, value in (("isoscore", 0.2), ("partition", -3.0))
}
counts = {key.replace("isoscore", "n_rows"): 128.0 for key in isotropy if "isoscore" in key}
folder.mkdir(parents=True, exist_ok=True)
(folder / "predictions").mkdir(exist_ok=True)
for split, n_rows in (("dev", 1000), ("test", 500)):  # the first rows are right, the others wrong
    n_right = round(n_rows * (accuracy - (0.1 if split == "test" else 0.0)))
    lines = "".join(f"{k},{k % 2},{(k + (k >= n_right)) % 2}\n" for k in range(n_rows))
    (folder / "predictions" / f"{split}.csv").write_text("index,label,prediction\n" + lines)
rows = [{"step": step, **isotropy} for step in (0, 10)]
(folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
(folder / "result.json").write_text(json.dumps({
    "status": "finished", "monitor": "val/accuracy", "n_rows": {"dev": 1000, "test": 500},
    "arm": arm, "seed": seed, "config": cfg, "data": os.environ.get("DATA", "demo-v1-seed0"),
    "environment": {"git": os.environ.get("CODE", "0a1b2c3d4e5f"), "isotrain": "0.1.0"},
    "finished_at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
    "headline": ["isoscore"],
    "scores": {"val/accuracy": accuracy, "val/loss": 0.7, "test/accuracy": accuracy - 0.1,
               **isotropy, **counts},
}))
note("end")
"""
)
# Plays a run of the search. Its accuracy is highest at a learning rate of 1e-3 and rises over the
# evaluations.
SEARCH_JOB = (
    OPENING
    + r"""
import math

def stop(*_):
    note("stop")
    os._exit(143)

signal.signal(signal.SIGTERM, stop)
note("start")
job = read_job()
cfg, name, folder = job["config"], Path(sys.argv[1]).stem, folder_of(job)
assert os.environ["OMP_NUM_THREADS"] == str(cfg["threads"])
lr, seed = cfg["optimizer"]["lr"], cfg["seed"]
best = 0.9 - 0.1 * abs(math.log10(lr) + 3) - 0.01 * seed
folder.mkdir(parents=True, exist_ok=True)
deadline = time.monotonic() + 60
held = name in os.environ.get("HOLD", "").split(",")
while held and not Path(os.environ["JOURNAL"]).with_name("go").exists():
    assert time.monotonic() < deadline
    time.sleep(0.02)
if name in os.environ.get("FAIL", "").split(","):
    print("first line", "the reason | in words", sep="\n")
    sys.exit(int(os.environ.get("CODE_OF_FAILURE", 3)))
once = Path(os.environ["JOURNAL"]).with_name(f"{name}-was-killed")
if name in os.environ.get("KILLED_ONCE", "").split(",") and not once.exists():
    once.touch()
    os.kill(os.getpid(), signal.SIGKILL)
if name in os.environ.get("DIVERGE", "").split(","):
    record = {"status": "failed", "error": "NonFiniteError: the loss is nan after 3 steps"}
    record |= {"arm": job["arm"], "config": cfg}
    (folder / "result.json").write_text(json.dumps(record))
    print("the loss is nan after 3 steps")
    sys.exit(1)
steps = int(os.environ.get("STEPS", 2))
with open(folder / "metrics.jsonl", "w") as rows:
    for step in range(steps + 1):
        value = 0.5 + (best - 0.5) * step / steps
        rows.write(json.dumps({"step": 10 * step, "time_s": 0.0, "val/accuracy": value}) + "\n")
        rows.flush()
        time.sleep(float(os.environ.get("PACE_S", 0)))
score = None if name in os.environ.get("NAN", "").split(",") else best
reason = "all one class" if name in os.environ.get("ALIKE", "").split(",") else ""
scores = {"val/accuracy": score, "val/loss": 1 - best, "test/accuracy": 0.123456}
(folder / "result.json").write_text(json.dumps({
    "status": "finished", "monitor": "val/accuracy", "n_rows": {"dev": 277, "test": 9},
    "scores": scores,
    "degenerate_reason": reason, "arm": job["arm"], "config": cfg,
    "environment": {"git": os.environ.get("CODE", "abc"), "isotrain": "0"},
}))
note("end")
"""
)
