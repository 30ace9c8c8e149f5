"""Damaged records of runs, studies and searches, as the commands that read them show them."""

import json
import shutil

import pytest

from tests.hostile.harness import TINY, draw, ended, judged
from tools import kill_points

pytestmark = pytest.mark.campaign
OF_RUN = ("task=wic", *TINY, "isotropy=clip", "trainer.log_every_n_steps=1", "cache_dir=null")
READERS = ("report", "table", "status", "export", "analyze", "train", "evaluate")
FOREIGN = (None, [], {}, "x", "<b>\x1b[31m", "\u202e", -1, 10**400, True, [[]], {"a": 1}, "\ud800")
FOREIGN += (1e308, float("nan"), float("inf"), 2.5, 2**63, ["x", 1], {"_target_": "os.system"})
ANALYSIS = ("analysis=clusters", "analysis.max_tokens=2000", "analysis.max_rows=200", "threads=1")
ANALYSIS += ("analysis.k_max=3", "analysis.silhouette_rows=100", "analysis.n_neighbors=10")
ANALYSIS += ("analysis.lid_queries=50", "analysis.map_rows=50", "source=demo")
BYTES = {
    "cut": lambda one, whole: whole[: one.randrange(len(whole))],
    "flipped": lambda one, whole: _flipped(whole, one.randrange(8 * len(whole))),
    "empty": lambda one, whole: b"",
    "zeros": lambda one, whole: bytes(len(whole)),
    "noise": lambda one, whole: one.randbytes(500),
    "nested": lambda one, whole: b"[" * 100_000 + b"\n",
    "digits": lambda one, whole: b'{"step": ' + b"9" * 5000 + b"}\n",
    "no object": lambda one, whole: b"[1]\n",
    "UTF-16": lambda one, whole: whole.decode(errors="replace").encode("utf-16"),
}
LOST = ("empty", "zeros", "noise", "nested", "digits", "no object", "UTF-16")  # nothing to read
PLANS = {  # the folder of a plan, and the files below the output folder that are damaged
    "studies/mine": ("study.json",) * 6 + ("table.csv", "table.md"),
    "searches/mine": ("search.json",) * 5 + ("study.db",) * 3 + ("trials.csv",),
}
KNOWN_BY = ("study.json", "search.json", "study.db")
SHARED = ("logs/*", "../../*/*/result.json")
SHARED += ("../../*/*/result.json", "../../*/*/metrics.jsonl", "../../.cache/*.json")
LOOKS = ("status", "report", "table", "run")


def _flipped(whole, bit):
    return whole[: bit // 8] + bytes([whole[bit // 8] ^ 1 << bit % 8]) + whole[bit // 8 + 1 :]


def foreign(one, whole):
    """One value of a JSON line replaced, lost or renamed; what was done, and the bytes."""
    lines = whole.decode().splitlines() if whole.startswith(b'{"step"') else [whole.decode()]
    number, value = one.randrange(len(lines)), one.choice(FOREIGN)
    content = json.loads(lines[number])
    node, name = content, one.choice(list(content))
    while isinstance(node[name], dict) and node[name] and one.random() < 0.7:
        node, name = node[name], one.choice(list(node[name]))
    if one.random() < 0.3:
        del node[name]
    else:
        node[name] = value
    lines[number] = json.dumps(content)
    return f"line {number + 1}, {name}: {ascii(value)[:40]}", ("\n".join(lines) + "\n").encode()


def damage(one, file):
    """Damage a file; what was done."""
    whole, is_json = file.read_bytes(), "json" in file.suffix and file.parent.name != ".cache"
    what = one.choice([*BYTES, *["foreign"] * 12 * is_json])
    if what == "foreign":
        what, content = foreign(one, whole)
    else:
        content = BYTES[what](one, whole)
    file.write_bytes(content)
    return what


def tells(text, file):
    """Whether a command has said that a file is damaged."""
    return "damaged" in text and file.name in text


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two finished runs in `out/`."""
    root = tmp_path_factory.mktemp("records") / "place"
    root.mkdir()
    for seed in (0, 1):
        end = ended(["train", *OF_RUN, f"seed={seed}", "output_dir=out"], root, limit_s=600)
        assert end.kind == "ran", end.text
    return root


@pytest.mark.parametrize("number", range(200))
def test_a_damaged_record(number, runs, tmp_path, record_property):
    one, place = draw("records", number), tmp_path / "place"
    shutil.copytree(runs, place)
    run, neighbour = sorted(place.glob("out/wic/*"))
    file = run / one.choice(("result.json",) * 4 + ("metrics.jsonl",) * 2 + ("config.yaml",))
    seed = json.loads((run / "result.json").read_text())["seed"]
    what = damage(one, file)
    reader = READERS[number % len(READERS)]
    command = {
        "table": ["report", "out"],
        "export": ["export", str(run), "--format", "transformers"],
        "analyze": ["analyze", *ANALYSIS, f"from_run={run}"],
        "train": ["train", *OF_RUN, f"seed={seed}", "output_dir=out"],
    }.get(reader, [reader, str(run)])
    end, why = ended(command, place), ""
    if reader == "table" and neighbour.name not in (place / "out/collected/runs.csv").read_text():
        why = "an intact neighbour is not shown"
    if what in LOST and file.name == "result.json" and reader == "train":  # it is replaced
        assert end.kind == "ran", end
        why = "; ".join(kill_points.differences(runs / run.relative_to(place), run))
    elif what in LOST and file.name == "result.json" and not tells(end.text, file):
        why = "the damage is not told"
    judged(record_property, f"{file.name} {what}; {' '.join(command)}", end, why)


@pytest.fixture
def quick(monkeypatch):
    """No figures."""
    monkeypatch.setattr("isotrain.commands.report._draw", lambda *_: [])


@pytest.mark.parametrize("number", range(100))
def test_a_damaged_plan(number, hostile_plans, quick, tmp_path, record_property):
    one, place = draw("plans", number), tmp_path / "place"
    folder = list(PLANS)[number % 2]
    shutil.copytree(hostile_plans / folder.partition("/")[0], place)
    own = place / "out" / folder
    file = one.choice(sorted(own.glob(one.choice(PLANS[folder] + SHARED)))).resolve()
    whole, reader = file.read_bytes(), LOOKS[number // 2 % len(LOOKS)]
    what = damage(one, file)
    words = {"table": ["report", "out"], "run": ["run", "mine.yaml", "output_dir=out"]}
    command = words.get(reader, [reader, f"out/{folder}"])
    end, why = ended(command, place, limit_s=120), ""
    reads_runs = reader == "table" or (reader != "run" and number % 2 == 0)  # of a study
    if what in LOST and file.name == "result.json" and reads_runs:
        why = "the damage is not told" * (not tells(end.text, file))
    has_begun = (what, file.name) == ("empty", "study.db")  # as a kill may leave it
    is_lost = what in LOST and what != "UTF-16"  # which JSON may be
    if file.name == "search.json" and reader == "run" and end.kind == "ran":  # `study.db` has all
        why = "a search goes on, and its record is not as before" * (file.read_bytes() != whole)
    elif is_lost and file.name in KNOWN_BY and reader != "table" and not has_begun:
        why = "what a plan is known by is damaged, and it goes on"
    judged(record_property, f"{file.name} {what}; {' '.join(command)}", end, why)
