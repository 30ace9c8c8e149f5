"""A command line is judged whole: every mistake, no other, and never an exception."""

import re
import string

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig

from isotrain.config.compose import compose_run, plain
from tests.judge import check_command

BASE = ("encoder=tiny", "source=demo")


def mistakes(*overrides, multirun=False, config_dir=None, base=BASE):
    return check_command([*base, *overrides], config_dir, multirun)[1]


def assert_told(found, starts):
    """Each mistake begins with one of `starts`, and each of these is told once."""
    assert len(found) == len(starts), found
    for start in starts:
        assert sum(mistake.startswith(start) for mistake in found) == 1, (start, found)


# ----------------------------------------------------------------------------- exact sets


@pytest.mark.parametrize(
    ("overrides", "starts"),
    [
        ((), ()),
        (("seed=1", "task=rte", "optimizer.lr=1e-3"), ()),
        (
            ("sede=1", "task=wicc", "data.batch_size=0"),
            ("no key sede; did you mean seed?", "task=wicc does not", "data.batch_size must be"),
        ),
        (
            ("seed=one", "rows=some", "site=pooled", "data.bach_size=3", "data.batching=sorted"),
            (
                *(
                    "seed must be int, got 'one'; its",
                    "rows must be all or no_special, got",
                    "site is a",
                ),
                *("no key data.bach_size", "data.batching must be length or random, got 'sor"),
            ),
        ),
        (("seed=[1", "task=wicc"), ("seed=[1 cannot be read", "task=wicc does not exist")),
        (("seed", "sede=1"), ("seed cannot be read", "no key sede")),
        (("seed=0,1", "threads=0"), ("seed=0,1 cannot be read: several values; add -m", "threads")),
        (("metric=[isoscor,lidd,partition]",), ("metric=isoscor does", "metric=lidd does")),
        (("encoder=tinny", "encoder.width=16"), ("encoder=tinny does not exist; did you mean",)),
        (("task=wicc", "task.form=bi", "pooling=spans"), ("task=wicc does not exist",)),
        (
            ("encoder=huggingface", "encoder.nme=x"),
            ("no key encoder.nme; did you mean encoder.name?",),
        ),
        (("encoder=huggingface", "sede=1"), ("no key sede",)),
        (("speed=[fast,exact]",), ("speed takes one of its names, got ['fast', 'exact']",)),
        (("isotropy=[zca]", "sede=1"), ("no key sede",)),
        (("speed=fats", "sede=1"), ("speed=fats does not exist; did you mean fast?", "no key se")),
        (("speed=null",), ("speed=null is no option",)),
        *(
            ((text,), (f"{text}: isotrain starts its runs itself",))
            for text in ("hydra.sweep.dir=x", "hydra/sweeper=optuna")
        ),
        (("learning_rate=1e-4",), ("no key learning_rate; ",)),
        (("batch_size=8",), ("no key batch_size; did you mean data.batch_size?",)),
        (("optimizer.muon_lr=1",), ("no key optimizer.muon_lr; it belongs to optimizer=muon",)),
        (("objective.cosreg.weight=1",), ("no key objective.cosreg.weight; it belongs to obj",)),
        (("encoder.name=x",), ("no key encoder.name; it belongs to encoder=bert_base, ",)),
        (
            ("trainer.precision=bf17",),
            ("trainer.precision must be 64 or 32 or 16 or transformer-engine or ",),
        ),
        (
            ("isotropy=cluster_pca", "isotropy.softness=1"),
            ("no key isotropy.softness; did you mean isotropy.assign.softness?",),
        ),
        (
            ("trainer.limit_val_batches=0",),
            ("no key trainer.limit_val_batches; it has max_epochs, ",),
        ),
        (("metric=[isoscor]", "monitor.headline=[isoscore]"), ("metric=isoscor does not exist",)),
        (("optimizer.lr=x", "optimizer.lr=y"), ("optimizer.lr must be float | Tensor, got 'y'",)),
        (("trainer.max_epochs=x", "+trainer.foo=1"), ("trainer.max_epochs", "trainer.foo is no")),
        (("optimizer=adam",), ("optimizer=adam does not exist; did you mean adamw?",)),
        (("data=5",), ("data has keys, got 5; set one, such as data.batch_size=32",)),
        (("data={batch_size:x}",), ("data={batch_size:x}: Value 'x' of type 'str' could not",)),
        (("patience=3",), ("no key patience; did you mean training.patience?",)),
        (("trainng.patience=3",), ("no key trainng.patience; did you mean training.patience?",)),
        (("sede.x=3",), ("no key sede.x; did you mean seed?",)),
        (("data={batch:1}",), ("no key data.batch; did you mean data.batching?",)),
        (("threads=one",), ("threads must be int | null, got 'one'; its default is threads=null",)),
        (("monitor.views=[cl]",), ("monitor.views must be a list of cls or tokens or mean, got",)),
        (("task", "wic"), ("task cannot be read: give key=value", "wic cannot be read: give key")),
        (("=wic",), ("=wic cannot be read: give key=value without blanks around the =, such",)),
        (
            ("objective.cosrg.weight=1", "objective=[cosreg]"),
            ("no key objective.cosrg.weight; did",),
        ),
        (
            ("study=smoke",),
            ("study=smoke is for another command; use: isotrain run smoke",),
        ),
        (
            ("tune=smoke",),
            ("tune=smoke is for another command; use: isotrain run smoke",),
        ),
    ],
)
def test_the_mistakes_are_told_and_no_others(overrides, starts):
    assert_told(mistakes(*overrides), starts)


# --------------------------------------------------------------------------- what is fine


@pytest.mark.parametrize(
    "overrides",
    [
        ("+trainer.profiler=simple",),
        ("++seed=3", "++optimizer.lr=1e-3"),
        ("+optimizer.amsgrad=true", "++optimizer.amsgrad=false"),
        ("~optimizer.fused", "~trainer.devices", "~task.form", "~metric.isoscore"),
        ("~optimizer.fused=true",),
        ("metric=[]", "objective=[]", "logger=[]"),
        ("metric=[isoscore]", "metric=[partition,isoscore]"),
        ("metric=isoscore", "logger=wandb"),
        ("site=[tokens,pooled,layer_1]", "rows=no_special", "pooling=mean"),
        ("seed='3'", 'seed="3"', "seed=3"),
        ("output_dir='a b'", 'output_dir="a=b,c"', "output_dir=a\\,b", "output_dir=a b"),
        ("output_dir=${data.batch_size}/x",),
        ("cache_dir=null", "threads=null", "monitor.headline=null"),
        ("optimizer.lr=1", "optimizer.betas=[0.9,0.99]", "trainer.gradient_clip_val=null"),
        ("logger=[wandb]", "logger.wandb.group=x"),
        ("objective=[cosreg]", "objective.cosreg.weight=0.5"),
        ("metric=[partition]", "metric.partition.function.log=false"),
        ("experiment=demo", "optimizer.lr=1e-5"),
        ("experiment=[demo]",),
        ("trainer=default", "schedule=cosine", "freezing=first_n", "freezing.n_blocks=1"),
    ],
)
def test_what_hydra_takes_is_taken(overrides):
    cfg, found = check_command([*BASE, *overrides])
    assert found == []
    assert plain(cfg) == plain(compose_run([*BASE, *overrides]))


# --------------------------------------------------------------------------------- sweeps


@pytest.mark.parametrize(
    ("overrides", "starts"),
    [
        (("seed=0,1,2", "task=rte,wic"), ()),
        (("seed=range(3)",), ()),
        (("task=choice(rte,wic)", "metric=[isoscore],[partition]", "site=[pooled],[tokens]"), ()),
        (("task=rte,wicc,stsbb",), ("task=wicc does not", "task=stsbb does not")),
        (("task=wicc,rte",), ("task=wicc does not",)),
        (("seed=0,x,2,y",), ("seed must be int, got 'x'", "seed must be int, got 'y'")),
        (("data.batching=length,sorted",), ("data.batching must be length or",)),
        (("metric=[isoscore],[partitoin]",), ("metric=partitoin does not exist",)),
        (("seed=interval(0,1)",), ("seed=interval(0,1) cannot be read: a sweep needs values",)),
        (("seed=0,1", "sede=1"), ("no key sede",)),
        (("seed=choice(1,a)",), ("seed must be int, got 'a'",)),
        *(
            (("seed=0,1", text), (f"{text}: isotrain starts its runs itself",))
            for text in ("hydra.sweep.dir=x", "hydra/sweeper=optuna")
        ),
        (  # of a run beyond those that are judged whole
            ("data.batch_size=16,thirty", "seed=range(64)"),
            ("data.batch_size must be int, got 'thirty'; its default is data.batch_size=32",),
        ),
    ],
)
def test_a_sweep_is_judged_value_by_value(overrides, starts):
    assert_told(mistakes(*overrides, multirun=True), starts)


@pytest.mark.parametrize(
    ("overrides", "start"),
    [
        (("isotropy=none,published", "data.batch_size=4"), "data.batch_size=4 over"),
        (("isotropy=cluster_pca,none", "isotropy.n_clusters=4"), "no key isotropy.n_clusters"),
        (("encoder._target_=os.system,isotrain.encoders.tiny.build_tiny",), "encoder._target_=os"),
        (("encoder=huggingface,tiny",), "encoder.name has no value"),
    ],
)
def test_every_value_of_a_sweep_is_judged_by_the_rules(overrides, start):
    group = overrides[0].partition("=")[0]
    base = [text for text in BASE if text.partition("=")[0] != group]
    found = mistakes(*overrides, multirun=True, base=base)
    assert any(mistake.startswith(start) for mistake in found), found


def test_the_configuration_of_a_sweep_is_that_of_the_first_values():
    """It is that of the last values of a key, and of the first option of a group."""
    cfg, _found = check_command([*BASE, "seed=3,4", "task=rte,wic"], None, True)
    assert cfg.task._target_.endswith(".RTE")
    assert cfg.seed == 3


# ------------------------------------------------------------------- deletions and additions


@pytest.mark.parametrize(
    ("override", "starts"),
    [
        ("~optimizer.lrr", ("~optimizer.lrr: ",)),
        ("~nothing", ("",)),
        ("~optimizer=sgd", ("",)),
        ("~encoder.width", ("encoder lacks width",)),
        ("~optimizer", ("optimizer must be one of its options",)),
        ("~isotropy._target_", ("isotropy must be one of its options",)),
        ("+seed=3", ("+seed=3: ",)),
        ("+task=rte", ("",)),
        ("++task=rte", ("",)),
        ("++foo=1", ("a run has no key foo; it has task",)),
        ("+foo.bar=1", ("a run has no key foo",)),
        ("++data.foo=1", ("data has no key foo",)),
        ("++seed=x", ("seed must be int",)),
        ("++optimizer.lrr=1", ("optimizer.lrr is no argument",)),
        ("++trainer.callbacks=[]", ("trainer.callbacks is set by isotrain itself",)),
    ],
)
def test_deletions_and_additions(override, starts):
    assert_told(mistakes(override), starts)


@pytest.mark.parametrize(
    "key",
    [
        *("seed", "rows", "site", "sync", "rerun", "cache_dir", "output_dir", "threads"),
        *("data", "training", "monitor", "checkpoint", "data.batch_size", "checkpoint.final"),
    ],
)
def test_a_key_of_the_run_cannot_be_deleted(key):
    found = mistakes(f"~{key}")
    assert found
    assert key in found[0]


@pytest.mark.parametrize(
    "override",
    [
        *(
            "",
            "=3",
            "seed==3",
            "-x",
            "{}",
            "é=3",
            "seed={a:1",
            "seed='3",
            "data..batch_size=3",
            "~",
        ),
        *("site[0]=tokens", "task@x=wic", "task/x=wic", "_target_=os.system", "seed=${nothing"),
        *("data=null", "train=3", "seed=null", "task=", "task=../x", "task=/etc/passwd"),
        *("task=[wic,x]", "metric=[[isoscore]]", "optimizer.lr.x=3", "threads=1.5"),
        *("+hydra.callbacks.x._target_=os.mkdir", "hydra.launcher._target_=os.mkdir"),
    ],
)
def test_odd_commands_are_told(override):
    found = mistakes(override)
    assert found
    assert all(mistake.strip() for mistake in found)


# -------------------------------------------------------------------------- files of the user


@pytest.mark.parametrize(
    ("name", "text", "start"),
    [
        ("pooling/mine", "_target_: isotrain.model.pooling.MeanPooling\n", None),
        ("task/mine", "_target_: isotrain.tasks.rte.RTE\nform: bi\nmax_length: 64\n", None),
        ("experiment/mine", "# @package _global_\nseed: 3\noptimizer: {lr: 1e-3}\n", None),
        ("experiment/mine", "", None),
        ("pooling/mine", "_target_: os.getcwd\n", "pooling._target_=os.getcwd is not allowed"),
        (
            "pooling/mine",
            "_target_: isotrain.model.pooling\n",
            "pooling._target_=isotrain.model.pooling is",
        ),
        ("pooling/mine", "_target_: ''\n", "pooling must be one of its options"),
        ("pooling/mine", "text\n", "pooling must be one of its options"),
        ("task/mine", "_target_: isotrain.tasks.rte.RTE\nfrom: bi\n", "task.from is no argument"),
        ("task/mine", "_target_: isotrain.tasks.rte.RTE\nform: 5\n", "task.form must be"),
        ("experiment/mine", "# @package _global_\ndata: {batch_size: 0}\n", "data.batch_size must"),
        (
            "experiment/mine",
            "# @package _global_\ndefaults:\n  - override /task: wicc\n",
            "In 'train': Could not find 'task/wicc'",
        ),
    ],
)
def test_a_file_of_the_users_own(own_files, name, text, start):
    folder = own_files(name, text)
    group, option = name.split("/")
    found = mistakes(f"{group}={option}", config_dir=folder)
    assert_told(found, [start] if start else [])
    (mistake,) = mistakes(f"{group}=min", config_dir=folder)
    assert mistake.startswith(f"{group}=min does not exist; did you mean mi")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sede: 3", ["sede", "seed"]),
        ("seed: many", ["seed", "many"]),
        ("seed: [3", ["experiment/mine"]),
        ("seed: 3\n\tx: 1", ["experiment/mine"]),
        ("seed: 3\nseed: 4", ["experiment/mine", "seed"]),
        ("seed: ${nothing}", ["seed", "nothing"]),
        ("seed: ${seed}", ["seed"]),
    ],
)
def test_a_wrong_file_for_the_whole_run_is_told_in_words(own_files, text, words):
    folder = own_files("experiment/mine", f"# @package _global_\n{text}\n")
    found = "\n".join(mistakes("experiment=mine", config_dir=folder))
    for word in words:
        assert word in found


def test_a_folder_of_files_that_is_not_there(tmp_path):
    assert check_command([*BASE, "sede=1"], f"{tmp_path}/none") == (
        None,
        [f"--config-dir {tmp_path}/none is not a folder"],
    )


def test_an_option_of_the_user_does_not_hide_a_shipped_one(own_files):
    folder = own_files("pooling/cls", "_target_: os.getcwd\n")
    cfg, found = check_command([*BASE, "pooling=cls"], folder)
    assert found == []
    assert cfg.pooling._target_ == "isotrain.model.pooling.ClsPooling"


# ----------------------------------------------------------------------- nothing may execute


@pytest.mark.parametrize(
    "override",
    [
        "encoder._target_=os.system",
        "+objective.x._target_=subprocess.run",
        "+metric.x.function._target_=builtins.eval",
        "+logger.x._target_=os.popen",
        "+trainer.plugins=[{_target_:os.getcwd}]",
        "+optimizer._args_=[{_target_:os.getcwd}]",
        "+foo._target_=os.getcwd",
        '+objective.x="${oc.create:{_target_:os.getcwd}}"',
    ],
)
def test_a_target_that_is_not_allowed_is_told_wherever_it_stands(override):
    assert any("is not allowed" in mistake for mistake in mistakes(override))


# ------------------------------------------------------------------------------- properties

FULL = (*BASE, "isotropy=cluster_pca", "objective=[cosreg]", "logger=[wandb]", "freezing=first_n")


def legal_keys(node, path=""):
    for key, value in node.items():
        if not str(key).startswith("_"):
            name = f"{path}.{key}" if path else str(key)
            yield name
            if isinstance(value, DictConfig):
                yield from legal_keys(value, name)


KEYS = sorted(legal_keys(compose_run(FULL)))
LETTERS = st.sampled_from(string.ascii_lowercase + "_")


@st.composite
def slips(draw, keys=KEYS):
    """A legal key, the segment that a slip of one letter changes, and the changed key."""
    key = draw(st.sampled_from(keys))
    segments = key.split(".")
    number = draw(st.integers(0, len(segments) - 1))
    word = segments[number]
    at = draw(st.integers(0, len(word) - 1))
    changed = draw(
        st.sampled_from(["insert", "delete", "replace", "swap"]).flatmap(
            lambda how: {
                "insert": LETTERS.map(lambda c: word[:at] + c + word[at:]),
                "delete": st.just(word[:at] + word[at + 1 :]),
                "replace": LETTERS.map(lambda c: word[:at] + c + word[at + 1 :]),
                "swap": st.just(word[:at] + word[at : at + 2][::-1] + word[at + 2 :]),
            }[how]
        )
    )
    assume(changed and changed not in ("_target_", "_partial_"))
    slipped = ".".join([*segments[:number], changed, *segments[number + 1 :]])
    assume(slipped not in KEYS)
    return key, word, slipped


@given(slips())
@settings(max_examples=40)
@example(("objective.cosreg.weight", "cosreg", "objective.cosrg.weight"))
def test_a_slip_of_one_letter_is_told_with_the_right_word(slip):
    _key, word, slipped = slip
    found = mistakes(f"{slipped}=1", base=FULL)
    assert_told(found, [f"no key {slipped}; "])
    hint = found[0].partition(";")[2]
    assert re.search(rf"\b{re.escape(word)}\b", hint), found


JUNK = st.text(
    alphabet=string.ascii_letters + string.digits + "=+~@,.:/\\'\"[]{}()$ _-é\n\t*?", max_size=14
)


@given(JUNK, st.booleans())
@settings(max_examples=30)
@example("~=3", False)
@example("~=3", True)
def test_junk_raises_nothing(text, multirun):
    found = mistakes(text, multirun=multirun)
    assert all(isinstance(mistake, str) for mistake in found)


@given(st.sampled_from(KEYS), st.sampled_from(["", "+", "++"]), JUNK, st.booleans())
@settings(max_examples=40)
@example("isotropy.removal.rho", "", "x", False)
def test_junk_as_a_value_raises_nothing(key, prefix, text, multirun):
    found = mistakes(f"{prefix}{key}={text}", base=FULL, multirun=multirun)
    assert all(mistake.strip() for mistake in found)


@given(st.sampled_from(KEYS))
@settings(max_examples=15)
@example("data")
def test_deleting_any_key_raises_nothing(key):
    assert all(isinstance(mistake, str) for mistake in mistakes(f"~{key}", base=FULL))


INDEPENDENT = {  # a command, and how its mistake begins
    "sede=1": "no key sede; did you mean seed?",
    "data.bach_size=8": "no key data.bach_size; did you mean data.batch_size?",
    "task=wicc": "task=wicc does not exist; did you mean wic?",
    "metric=[isoscor,partition]": "metric=isoscor does not exist; did you mean isoscore?",
    "objective=[simsce]": "objective=simsce does not exist; did you mean simcse?",
    "monitor.every_steps=-1": "monitor.every_steps must be at least 0, got -1",
    "training.layer_decay=0": "training.layer_decay must be above 0, got 0",
    "training.warmup_fraction=1.5": "training.warmup_fraction must be at most 1, got 1.5",
    "seed=one": "seed must be int, got 'one'; its default is seed=0",
    "seed": "seed cannot be read: give key=value without blanks around the =",
    "data.batching=sorted": "data.batching must be length or random, got 'sorted'",
    "data.batch_size=0": "data.batch_size must be at least 1, got 0",
    "site=pooled": "site is a list; write 'site=[pooled]'",
}


@given(st.lists(st.sampled_from(sorted(INDEPENDENT)), min_size=2, unique=True))
@settings(max_examples=15)
def test_mistakes_of_different_keys_do_not_hide_each_other(commands):
    """What bad command lines are told apart is told together."""
    found = mistakes(*commands)
    for command in commands:
        assert any(mistake.startswith(INDEPENDENT[command]) for mistake in found), (command, found)
