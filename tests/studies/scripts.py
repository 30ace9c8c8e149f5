"""A study and a search, the scripts that play their runs, and what a run leaves."""

from isotrain.config.compose import recorded
from isotrain.config.schema import NOT_CONTENT
from isotrain.runs.files import write_json

STUDY = """
overrides: [encoder=tiny, source=demo]
tasks: {rte: [task=rte]}
methods: {none: [isotropy=none], mean: [isotropy=mean]}
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
    for name, value in (
        ("output_dir", config["output_dir"]),
        ("oc.env:ISOTRAIN_DATA_DIR", os.environ.get("ISOTRAIN_DATA_DIR", "")),
    ):
        text = text.replace("${" + name + "}", value)
    return json.loads(text)

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
    task = job["config"]["task"]["_target_"].split(".")[-2]
    return Path(job["config"]["output_dir"]) / task / f"{job['method']}-{name}"
"""
)
# Plays a run: notes what it does, logs evaluations, and leaves a result. In a search, accuracy is
# highest at a learning rate of 1e-3; it rises over the evaluations.
JOB = (
    OPENING
    + r"""
import math

def stop(*_):
    note("stop")
    os._exit(143)

def is_in(variable):
    return name in os.environ.get(variable, "").split(",")

def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)

signal.signal(signal.SIGTERM, stop if "STUBBORN" not in os.environ else signal.SIG_IGN)
job, name, journal = read_job(), Path(sys.argv[1]).stem, Path(os.environ["JOURNAL"])
cfg, method, seed, folder = job["config"], job["method"], job["config"]["seed"], folder_of(job)
assert os.environ["OMP_NUM_THREADS"] == str(cfg["threads"])
folder.mkdir(parents=True, exist_ok=True)
note("start")
if is_in("HOLD"):
    wait_for(journal.with_name("go").exists)
if "MEET" in os.environ:  # go on when a second run is at work

    def met():
        starts = [line for line in journal.read_text().splitlines() if line.startswith("start")]
        own = [line.split()[1] for line in starts].index(name)
        return len(starts) >= own + 2 - own % 2

    wait_for(met)
if is_in("FAIL"):
    print("first line", "the reason | in words", sep="\n")
    sys.exit(int(os.environ.get("CODE_OF_FAILURE", 3)))
once = journal.with_name(f"{name}-was-killed")
if is_in("KILLED_ONCE") and not once.exists():
    once.touch()
    os.kill(os.getpid(), signal.SIGKILL)
if is_in("DIVERGE"):
    record = {"status": "failed", "error": "NonFiniteError: the loss is nan after 3 steps"}
    (folder / "result.json").write_text(json.dumps({**record, "method": method, "config": cfg}))
    print("the loss is nan after 3 steps")
    sys.exit(1)
accuracy = 0.5 + 0.01 * seed**2 + (0.1 + 0.002 * seed if method == "mean" else 0.0)
if job["search"]:
    accuracy = 0.9 - 0.1 * abs(math.log10(cfg["optimizer"]["lr"]) + 3) - 0.01 * seed
isotropy = {
    f"isotropy/{metric}/{place}": value * (1 + seed / 10)
    for place in ("layer_01/tokens", "layer_02/tokens", "layer_02/cls", "pooled/before",
                  "pooled/after")
    for metric, value in (("isoscore", 0.2), ("partition", -3.0))
}
counts = {key.replace("isoscore", "n_rows"): 128.0 for key in isotropy if "isoscore" in key}
(folder / "predictions").mkdir(exist_ok=True)
for split, n_rows in (("dev", 1000), ("test", 500)):  # the first rows are right, the others wrong
    n_right = round(n_rows * (accuracy - (0.1 if split == "test" else 0.0)))
    lines = "".join(f"{k},{k % 2},{(k + (k >= n_right)) % 2}\n" for k in range(n_rows))
    (folder / "predictions" / f"{split}.csv").write_text("index,label,prediction\n" + lines)
with open(folder / "metrics.jsonl", "w") as rows:
    for step in range(3):
        value = 0.5 + (accuracy - 0.5) * step / 2
        rows.write(json.dumps({"step": 10 * step, "val/accuracy": value, **isotropy}) + "\n")
        rows.flush()
        time.sleep(float(os.environ.get("PACE_S", 0)))
(folder / "result.json").write_text(json.dumps({
    "status": "finished", "monitor": "val/accuracy", "n_rows": {"dev": 1000, "test": 500},
    "method": method, "seed": seed, "config": cfg, "data": os.environ.get("DATA", "demo-v1-seed0"),
    "environment": {"git": os.environ.get("CODE", "0a1b2c3d4e5f"), "isotrain": "0.1.0"},
    "finished_at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
    "headline": ["isoscore"], "degenerate_reason": "all one class" if is_in("ALIKE") else "",
    "scores": {"val/accuracy": None if is_in("NAN") else accuracy, "val/loss": 0.7,
               "test/accuracy": accuracy - 0.1, **isotropy, **counts},
}))
note("end")
"""
)


def leave(job, **more):
    """A finished run, as little of one as there may be; `more` replaces parts of its record."""
    scores = {"val/accuracy": 0.5 + 0.1 * job.seed + 0.001 * job.seed**2 * (job.method == "mean")}
    whole = {"status": "finished", "monitor": "val/accuracy", "n_rows": {"dev": 9, "test": 8}}
    whole |= {"method": job.method, "config": recorded(job.cfg), "data": "demo-v1-seed0"}
    job.folder.mkdir(parents=True, exist_ok=True)
    write_json(job.folder / "result.json", {**whole, "scores": scores, **more})
