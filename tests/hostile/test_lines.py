"""A thousand drawn command lines, behind those that once went wrong.

A test has twenty of them, each in a fork of this process, which has everything imported.
"""

import functools
import shutil
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from isotrain.config.compose import compose_run
from isotrain.config.shipped import conf_folder
from tests.hostile.harness import LIMIT_S, TINY, draw, ended, judged

pytestmark = pytest.mark.campaign
RUN = ("train", "task=wic", *TINY, "output_dir=out")
REJECTED = (
    *(["+trainer.check_val_every_n_epoch=0"]),
    *(["+optimizer.betas=[0.9]"], ["isotropy=cluster_pca", "isotropy.queue_rows=1000000000000"]),
    *(["--help=1"], ["output_dir=/proc/x"], ["output_dir=" + "a/" * 2500]),
    *(["output_dir=" + "a" * 5000],),
    *(["-m", "seed=range(0,1,0)"], ["-m", "--jobs", "1", "seed=range(0,3)"]),
    *(["+trainer.deterministic=banana"], ["+trainer.max_time=banana"], ["trainer.max_steps=-7"]),
    *(["init_from="], ["+trainer.profiler=banana"]),
    *(["+trainer.limit_train_batches=-1"], ["+trainer.limit_train_batches=7.5"]),
    *(["+trainer.detect_anomaly=maybe"], ["+trainer.benchmark=maybe"], ["+optimizer.eps=nan"]),
    *(["+trainer.gradient_clip_algorithm=x"], ["trainer.gradient_clip_val=inf"]),
    *(["+trainer.inference_mode=7"], ["+trainer.num_nodes=100000"], ["+optimizer.eps=-1"]),
    *(["trainer.max_epochs=-3"], ["trainer.devices=[0,0]"]),
    *(["+trainer.barebones=true"], ["+trainer.fast_dev_run=-2"], ["optimizer.lr=inf"]),
    *(["encoder.width=1000000000"], ["encoder.width=0"]),
    *(["encoder.n_blocks=100000000"], ["encoder.n_heads=3"], ["data.batch_size=" + "9" * 400]),
    *(["seed=\x1b]0;title\x07"], ["sede\x1b[31m=1"], ["task=\udcff"], ["task=wic\n\x01"]),
)
OF_LIBRARIES = (  # each is to be rejected with this error, which is not ours
    (["--experimental-rerun", "x.pickle"], "ValueError: File x.pickle does not exist!"),
    (
        ["optimizer.lr=1e300"],
        "RuntimeError: value cannot be converted to type float without overflow",
    ),
    (
        ["trainer.val_check_interval=1e9"],
        "ValueError:  `val_check_interval` (1000000000) must be less than or equal to the number",
    ),
)
ACCEPTED = (  # each is to end, and to say this
    (["output_dir="], "\nwic/none-c6fa2d143c: "),  # here, and the same run as elsewhere
    (["cache_dir="], "\nout/wic/none-c6fa2d143c: "),  # none: it changes no number
    (["+trainer.min_epochs=-5"], "pooled             8   0.0323 → 0.0328"),  # no effect
    (["+trainer.min_steps=-1"], "pooled             8   0.0323 → 0.0328"),
    (["+trainer.limit_train_batches=0"], "pooled             8     0.0323"),  # no step
    (["optimizer.weight_decay=1e30", "trainer.max_steps=1"], "The run is degenerate"),
)
NAMED = (
    *((words, "", "") for words in REJECTED),
    *((words, error, "") for words, error in OF_LIBRARIES),
    *((words, "", told) for words, told in ACCEPTED),
)
NONSENSE = ("banana", "[1,[2,{a:b}]]", "{a:1}", "1e400", "-1e400", "nan", "''", "!!python/none")
STRANGE = (
    *("0", "-0.0", "1e-320", "9" * 60, "-" + "9" * 60, "0x10", "1_0", "٣", "null", "true", "~"),
    *("a" * 5000, "\x1b[2J\x1b]0;x\x07", "\u202egnp", "é" * 300, "\\", "'", '"', "${seed}"),
    *("${oc.env:HOME}", "${oc.env:NOT_THERE}", "${a.b}", "${${seed}}", "${oc.select:seed,1}"),
    *("$" + "{" * 90, "range(3)", "glob(*)"),
    *("range(0,1,0)", "range(9,1)", "&a *a", "1e39"),
    *("choice(1,2)", "1,2", "interval(0,1)", "sort(3,2)", "cast(1)", "int(x)", " ", "\t", "\x01"),
    *("/proc/self/mem", "..", "../..", "/", "%s%n", "<script>", "\udc80", "inf", "NaN", "1.", "!"),
)
OPTIONS = (*STRANGE, "[none,none]", "none")
VALUES = (None, [], {}, -1, 10**30, float("nan"), [[["x"]]], {"a": {"b": 1}}, [None], [1] * 3000)
TARGETS = (
    *(".", "", "-", "no where", "out", "\x1b[1mx", "/dev/null", "smoke", "smoke_search", "whole"),
    *("a" * 5000, "é" * 200, "\x01", "..\x07", "\udc80"),
)
FLAGS = (
    *("--json", "--jobs", "--out", "--to", "--format", "--wandb", "--", "-j"),
    *("--config-dir", "--x", "-", "--=", "--jobs=0", f"--jobs={'9' * 400}", "--json=1"),
)
EACH = 20  # lines of a test


def leaves(node, path=""):
    """The dotted keys of a configuration with their values."""
    for key, value in node.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{path}{key}.")
        elif not str(key).startswith("_"):
            yield f"{path}{key}", value


@functools.cache
def keys():
    cfg = compose_run(["task=wic", *TINY, "isotropy=cluster_pca", "objective=[istar]"])
    return dict(leaves(OmegaConf.to_container(cfg, resolve=False, enum_to_str=True)))


def drawn_overrides(one):
    """Overrides of `train` and, where all must be rejected, why."""
    found, why = [], ""
    groups = sorted({key.partition(".")[0] for key in keys() if "." in key})
    for _ in range(one.choice((1, 1, 1, 2, 3, 6))):
        key = one.choice(list(keys()))
        value = keys()[key]
        kind = one.choice(("type", "strange", "sign", "unknown", "group", "double", "delete"))
        place, more = one.randrange(len(key) + 1), one.choice(("", "", "+", "++"))
        wrong = {
            "type": f"{key}={one.choice(NONSENSE)}" if isinstance(value, int | float) else "",
            "sign": f"{key}=-{one.randrange(2, 10**9)}" if type(value) is int else "",
            "unknown": f"{more}{key[:place]}{one.choice('xq_9é')}{key[place:]}=1",
        }.get(kind)
        is_name = (wrong or "").startswith(("+names.", "++names."))  # a mapping for records
        is_free = is_name or (kind, key) == ("sign", "source.seed")  # a text seeds the demo
        why = (not is_free and wrong) or why
        other = {"delete": f"~{key}", "group": f"{one.choice(groups)}={one.choice(OPTIONS)}"}
        if isinstance(value, list) and isinstance(next(iter(value), 1), str):
            other["double"] = f"{key}=[{value[0]},{value[0]}]"  # of no effect
        found.append(wrong or other.get(kind, f"{more}{key}={one.choice(STRANGE)}"))
    return found, why


def drawn_train(one):
    overrides, why = drawn_overrides(one)
    if one.random() < 0.15:
        swept = f"{one.choice(list(keys()))}={','.join(one.sample(STRANGE, 3))}"
        return ["train", "-m", "hydra.sweeper.only_list=true", *RUN[1:], swept, *overrides], ""
    return [*RUN, "isotropy=cluster_pca", "objective=[istar]", *overrides], why


def drawn_run(one):
    """A study or a search, damaged; the file is `mine.yaml`."""
    kind, name = one.choice((("studies", "smoke"), ("searches", "smoke_search")))
    content = yaml.safe_load(Path(conf_folder(), kind, f"{name}.yaml").read_text())
    file = Path("mine.yaml")
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
            node[name] = one.choice([*VALUES, *STRANGE])
    text = yaml.safe_dump(content)
    if one.random() < 0.2:
        place = one.randrange(len(text))
        text = text[:place] + one.choice(["\x00", "\t", "{[", "&a [*a]", ""]) + text[place + 1 :]
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    return ["run", file.name, "--list"], ""


def drawn_folder_command(one):
    """A command of what is no run, or of one with odd options."""
    whole = str(next(Path().glob("whole/*/*/result.json")))
    words = [one.choice([whole, whole.removesuffix("/result.json"), *TARGETS])]
    for _ in range(one.randrange(4)):
        words.append(one.choice(FLAGS))
        words += [one.choice([*STRANGE, "x", "1"])] * one.randrange(2)
    words += drawn_overrides(one)[0][: one.randrange(2)]
    if one.random() < 0.3:
        one.shuffle(words)
    return [one.choice(("evaluate", "report", "status", "export")), *words], ""


def line(number):
    """A command line; where it must be rejected why, by which error of a library, what it says."""
    if number < len(NAMED):
        words, error, told = NAMED[number]
        return [*RUN, *words], "" if error or told else "to be refused", error, told
    one = draw("line", number - len(NAMED))
    kinds = (drawn_train, drawn_run, drawn_folder_command)
    return *one.choices(kinds, (5, 2, 3))[0](one), "", ""


@pytest.mark.parametrize("first", range(0, len(NAMED) + 1000, EACH))
def test_command_lines(first, hostile_runs, tmp_path, monkeypatch, record_property):
    place, failed = tmp_path / "place", []
    shutil.copytree(hostile_runs / "whole", place / "whole")
    monkeypatch.chdir(place)
    for number in range(first, min(first + EACH, len(NAMED) + 1000)):
        command, why, of_library, told = line(number)
        # speed.compile takes a minute in an empty home
        own = {"HOME": str(tmp_path), "ISOTRAIN_DATA_DIR": "", "TORCHDYNAMO_DISABLE": "1"}
        end = ended(command, place, own, LIMIT_S)
        try:
            judged(record_property, command, end, why, of_library)
            assert told in end.text, end.text[-3000:]
            assert end.kind == "ran" or not told, end.text[-3000:]
        except AssertionError as error:
            failed.append(f"{number}: {error}")
    assert not failed, "\n\n".join(failed)
