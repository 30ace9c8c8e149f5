"""A thousand drawn command lines, behind those that once went wrong."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml
from omegaconf import OmegaConf

from isotrain.config.compose import compose_run, conf_folder
from tests.hostile.harness import TINY, draw, ended, judged

pytestmark = pytest.mark.campaign
RUN = ("train", "task=wic", *TINY, "output_dir=out")
NAMED = (  # each is to be refused
    *(["+trainer.overfit_batches=1"], ["+trainer.check_val_every_n_epoch=0"]),
    *(["+optimizer.betas=[0.9]"], ["isotropy=cluster_pca", "isotropy.queue_rows=1000000000000"]),
    *(["--resolve"], ["--help=1"], ["output_dir=/proc/x"], ["output_dir=" + "a/" * 2500]),
    *(["--experimental-rerun", "x.pickle"], ["output_dir=" + "a" * 5000], ["output_dir="]),
    *(["+x=" + "[" * 3000 + "]" * 3000], ["site=" + "[" * 400 + "]" * 400]),
    *(["-m", "seed=range(0,1000000000)"], ["-m", "--jobs", "1", "seed=range(0,1e12)"]),
    *(["+trainer.deterministic=banana"], ["+trainer.min_epochs=-5"]),
    *(["+trainer.limit_train_batches=0"], ["metric=[isoscore,isoscore]"]),
    *(["objective=[istar,istar]"], ["optimizer.lr=1e300"], ["+trainer.max_time=banana"]),
    *(["optimizer.weight_decay=1e30", "trainer.max_steps=1"], ["trainer.max_steps=-7"]),
    *(["cache_dir="], ["init_from="], ["+trainer.profiler=banana"], ["+trainer.min_steps=-1"]),
    *(["+trainer.limit_train_batches=-1"], ["+trainer.limit_train_batches=7.5"]),
    *(["+trainer.detect_anomaly=maybe"], ["+trainer.benchmark=maybe"], ["+optimizer.eps=nan"]),
    *(["+trainer.gradient_clip_algorithm=x"], ["trainer.gradient_clip_val=inf"]),
    *(["+trainer.inference_mode=7"], ["+trainer.num_nodes=100000"], ["+optimizer.eps=-1"]),
    *(["trainer.max_epochs=-3"], ["trainer.devices=[0,0]"]),
    *(["+trainer.barebones=true"], ["+trainer.fast_dev_run=-2"], ["optimizer.lr=inf"]),
    *(["trainer.val_check_interval=1e9"], ["encoder.width=1000000000"], ["encoder.width=0"]),
    *(["encoder.n_blocks=100000000"], ["encoder.n_heads=3"], ["data.batch_size=" + "9" * 400]),
    *(["seed=\x1b]0;title\x07"], ["sede\x1b[31m=1"], ["task=\udcff"], ["task=wic\n\x00"]),
)
NONSENSE = ("banana", "[1,[2,{a:b}]]", "{a:1}", "1e400", "-1e400", "nan", "''", "!!python/none")
STRANGE = (
    *("0", "-0.0", "1e-320", "9" * 60, "-" + "9" * 60, "0x10", "1_0", "٣", "null", "true", "~"),
    *("a" * 5000, "\x1b[2J\x1b]0;x\x07", "\u202egnp", "é" * 300, "\\", "'", '"', "${seed}"),
    *("${oc.env:HOME}", "${oc.env:NOT_THERE}", "${a.b}", "${${seed}}", "${oc.select:seed,1}"),
    *("$" + "{" * 90, "[" * 250 + "]" * 250, "{a:" * 120 + "1" + "}" * 120, "range(3)", "glob(*)"),
    *("choice(1,2)", "1,2", "interval(0,1)", "sort(3,2)", "cast(1)", "int(x)", " ", "\t", "\x00"),
    *("/proc/self/mem", "..", "../..", "/", "%s%n", "<script>", "\ud800", "inf", "NaN", "1.", "!"),
)


def leaves(node, path=""):
    """The dotted keys of a configuration with their values."""
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{path}{key}.")
        elif not str(key).startswith("_"):
            yield f"{path}{key}", value


@pytest.fixture(scope="module")
def keys():
    cfg = compose_run(["task=wic", *TINY, "isotropy=cluster_pca", "objective=[istar]"])
    return dict(leaves(OmegaConf.to_container(cfg, resolve=False, enum_to_str=True)))


def drawn_overrides(one, keys, groups):
    """Overrides of `train` and, where all must be refused, why."""
    found, why = [], ""
    for _ in range(one.choice((1, 1, 1, 2, 3, 6))):
        key = one.choice(list(keys))
        value = keys[key]
        kind = one.choice(("type", "strange", "sign", "unknown", "group", "double", "delete"))
        is_number = isinstance(value, int | float)
        if kind == "type" and is_number:  # no number and no truth value
            found.append(f"{key}={one.choice(NONSENSE)}")
            why = found[-1]
        elif kind == "sign" and isinstance(value, int) and not isinstance(value, bool):
            found.append(f"{key}=-{one.randrange(2, 10**9)}")
            why = found[-1]
        elif kind == "unknown":
            place, end = one.randrange(len(key) + 1), one.choice("xq_9é\x07")
            found.append(f"{one.choice(('', '+', '++'))}{key[:place]}{end}{key[place:]}=1")
            why = found[-1]
        elif kind == "group":
            found.append(f"{one.choice(groups)}={one.choice([*STRANGE, '[none,none]', 'none'])}")
        elif kind == "double" and isinstance(value, list) and value:
            found.append(f"{key}=[{value[0]},{value[0]}]")
            why = found[-1]
        elif kind == "delete":
            found.append(f"~{key}")
        else:
            found.append(f"{one.choice(('', '', '+', '++'))}{key}={one.choice(STRANGE)}")
    return found, why


def drawn_train(one, keys, groups, folder):
    overrides, why = drawn_overrides(one, keys, groups)
    if one.random() < 0.15:
        swept = f"{one.choice(list(keys))}={','.join(one.sample(STRANGE, 3))}"
        return ["train", "-m", "--keys", *RUN[1:], swept, *overrides], ""
    return [*RUN, "isotropy=cluster_pca", "objective=[istar]", *overrides], why


def drawn_run(one, keys, groups, folder):
    """A study, a search, a sweep or a job file, damaged."""
    kind = one.choice(("study", "tune", "job"))
    if kind == "job":
        (source,) = folder.glob("whole/*/*/result.json")
        content = json.loads(source.read_text())
        target, content["config"]["output_dir"] = "job.json", "out"
    else:
        name = "smoke" if kind == "study" else "smoke_search"
        with open(f"{conf_folder()}/{kind}/{name}.yaml") as file:
            content = yaml.safe_load(file)
        target = "mine.yaml"
    why = ""
    for _ in range(one.choice((1, 1, 2))):
        node, name = content, one.choice(list(content))
        while isinstance(node[name], dict) and node[name] and one.random() < 0.6:
            node, name = node[name], one.choice(list(node[name]))
        how = one.randrange(5)
        if how == 0:
            del node[name]
        elif how == 1:
            node[f"{name}q\x07"] = node.pop(name)
        else:
            values = (None, [], {}, -1, 10**30, float("nan"), [[["x"]]], {"a": {"b": 1}}, [None])
            node[name] = one.choice([*values, *STRANGE])
        if not content:
            break
    text = json.dumps(content) if kind == "job" else yaml.safe_dump(content)
    if one.random() < 0.2:
        place = one.randrange(len(text))
        text = text[:place] + one.choice(["\x00", "\t", "{[", "&a [*a]", ""]) + text[place + 1 :]
    return ["run", target, *([] if kind == "job" else ["--list"])], why, target, text


def drawn_folder_command(one, keys, groups, folder):
    """`evaluate`, `report`, `collect`, `status` or `export` of what is no run, with odd options."""
    name = one.choice(("evaluate", "report", "collect", "status", "export"))
    (whole,) = folder.glob("whole/*/*/result.json")
    targets = [
        str(whole.parent),
        str(whole),
        str(folder),
        "",
        ".",
        "-",
        "no where",
        "out",
        "\x1b[1mx",
    ]
    targets += [
        "/dev/null",
        "smoke",
        "smoke_search",
        "a" * 5000,
        "é" * 200,
        "\x00",
        "..\x07",
        "\ud800",
    ]
    options = ["--json", "--name", "--trials", "--jobs", "--out", "--to", "--format", "--wandb"]
    options += [
        "--config-dir",
        "--x",
        "-",
        "--",
        "--=",
        "--jobs=0",
        f"--jobs={'9' * 400}",
        "--json=1",
    ]
    words = [one.choice(targets)]
    for _ in range(one.randrange(4)):
        words.append(one.choice(options))
        words += [one.choice([*STRANGE, "x", "1"])] * one.randrange(2)
    overrides, _ = drawn_overrides(one, keys, groups)
    words += overrides[: one.randrange(2)]
    if one.random() < 0.3:
        one.shuffle(words)
    return [name, *words], ""


def ran(command, runs, tmp_path, name="", text=""):
    folder = tmp_path / "place"
    folder.mkdir()
    shutil.copytree(runs / "whole", folder / "whole")
    if name:
        (folder / name).write_bytes(text.encode("utf-8", "surrogatepass"))
    command = [word.replace(str(runs), str(folder)) for word in command]
    return ended(command, folder, {"HOME": str(tmp_path), "ISOTRAIN_DATA_DIR": ""})


@pytest.mark.parametrize(
    "number",
    range(len(NAMED)),
    ids=lambda n: " ".join(NAMED[n])[:60].encode("unicode_escape", "surrogatepass").decode(),
)
def test_a_line_that_once_went_wrong(number, hostile_runs, tmp_path, record_property):
    command = [*RUN, *NAMED[number]]
    judged(record_property, command, ran(command, hostile_runs, tmp_path), "to be refused")


@pytest.mark.parametrize("number", range(1000))
def test_a_drawn_line(number, hostile_runs, keys, tmp_path, record_property):
    one = draw("line", number)
    groups = sorted({key.partition(".")[0] for key in keys if "." in key})
    kind = one.choices((drawn_train, drawn_run, drawn_folder_command), (5, 2, 3))[0]
    command, why, *file = kind(one, keys, groups, hostile_runs)
    end = ran(command, hostile_runs, tmp_path, *file)
    judged(record_property, [*command, *map(str, file)], end, why)
