"""What does not apply on a command line is reported whole: every override, and no other."""

import itertools
import re
import string
from difflib import SequenceMatcher

import pytest
from hypothesis import Phase, assume, example, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig

from isotrain.config.compose import ConfigError, compose_run, wrong_overrides
from isotrain.config.typos import options_of
from tests.judge import judged

BASE = ("encoder=tiny", "source=demo")


def errors(*overrides, config_dir=None, base=BASE):
    return judged([*base, *overrides], config_dir)[1]


def assert_reported(found, starts):
    """Each error begins with one of `starts`, and each of these is reported once."""
    assert len(found) == len(starts), found
    for start in starts:
        assert sum(error.startswith(start) for error in found) == 1, (start, found)


TOLD = [
    # keys
    (("sede=1",), ("no key sede; did you mean seed?",)),
    (("batch_size=8",), ("no key batch_size; did you mean data.batch_size?",)),
    (("refit_rows=3",), ("no key refit_rows; did you mean training.refit_rows?",)),
    (("trainng.select=best",), ("no key trainng.select; did you mean training.select?",)),
    (("learning_rate=1e-4",), ("no key learning_rate; --cfg job shows all keys",)),
    (("data.xyz=1",), ("no key data.xyz; it has path, hub, name, revision, ",)),
    (
        ("trainer.limit_val_batches=2",),
        ("no key trainer.limit_val_batches; it has max_epochs, max_steps, ",),
    ),
    (("encoder=huggingface", "encoder.nme=x"), ("no key encoder.nme; did you mean encoder.name?",)),
    (("encoder.name=x",), ("no key encoder.name; ",)),
    (("optimizer.muon_lr=1",), ("no key optimizer.muon_lr; it has lr, ",)),
    (("objective.cosreg.weight=1",), ("no key objective.cosreg.weight; ",)),
    (
        ("objective.cosrg.weight=1", "objective=[cosreg]"),
        ("no key objective.cosrg.weight; did you mean objective.cosreg.weight?",),
    ),
    (
        ("isotropy=cluster_pca", "isotropy.n_cluster=1"),
        ("no key isotropy.n_cluster; did you mean isotropy.n_clusters?",),
    ),
    # options of a group
    (("task=wicc",), ("task=wicc does not exist; did you mean wic?",)),
    (("optimizer=adam",), ("optimizer=adam does not exist; did you mean adamw?",)),
    (
        ("metric=[isoscor,lidd,partition]",),
        ("metric=isoscor does not exist; did you mean isoscore?",),
    ),
    (("encoder=${oc.select:seed,1}",), ("encoder=${oc.select:seed,1} does not exist; there are",)),
    (("isotropy=null",), ("isotropy=null does not exist; there are all_but_the_top, ",)),
    (
        ("task=nothing_like_it",),
        ("task=nothing_like_it does not exist; there are boolq, classification, ",),
    ),
    # values
    (("seed=one",), ("seed=one: Value 'one' of type 'str' could not be converted to Int",)),
    (("threads=1.5",), ("threads=1.5: ",)),
    (("seed=null",), ("seed=null: ",)),
    (("rows=some",), ("rows=some: ",)),
    (("site=pooled",), ("site=pooled: ",)),
    (("data=5",), ("data=5: ",)),
    (("data={bach:1}",), ("data={bach:1}: Key 'bach' not in",)),
    (
        ("seed=0,1",),
        ("Ambiguous value for argument 'seed=0,1'; a list is [a,b], and several",),
    ),
    # what is no override
    (("task", "wic"), ("task cannot be read: ", "wic cannot be read: ")),
    (("seed=[1",), ("seed=[1 cannot be read",)),
    (("=3",), ("=3 cannot be read: there is no key",)),
    # + and ~
    (("+seed=3",), ("+seed=3: Could not append",)),
    (("++foo=1",), ("a run has no key foo; it has task",)),
    (("+data.bach=1",), ("data has no key bach; did you mean batching?",)),
    (("++optimizer.lrr=1",), ("optimizer.lrr is no argument",)),
    (("~optimizer.lrr",), ("~optimizer.lrr: ",)),
    (("~nothing",), ("~nothing: Could not delete",)),
    (("optimizer=muon", "~optimizer.nesterov", "sede=1"), ("~optimizer.nesterov: ", "no key sede")),
    (("optimizer=muon", "~optimizer.momentum", "sede=1"), ("no key sede",)),
    (("optimizer=muon", "+optimizer.momentum=1", "sede=1"), ("+optimizer.momentum=1: ", "no key")),
    # several at once
    (
        ("sede=1", "task=wicc", "site=pooled", "data.bach_size=3", "data.batching=sorted", "x"),
        (
            "no key sede",
            "task=wicc",
            "site=pooled",
            "no key data.bach_size",
            "data.batching",
            "x cannot",
        ),
    ),
    (("seed=[1", "task=wicc"), ("seed=[1 cannot be read", "task=wicc does not exist")),
    (("speed=fats", "sede=1"), ("speed=fats does not exist; did you mean fast?", "no key sede")),
    (("optimizer.lr=x", "data.batch_size=0"), ("data.batch_size must be", "optimizer.lr must be")),
]


@pytest.mark.parametrize(("overrides", "starts"), TOLD)
def test_every_error_is_reported_and_no_other(overrides, starts):
    assert_reported(errors(*overrides), starts)


@pytest.mark.parametrize(
    "overrides",
    [
        ("+trainer.profiler=simple", "++seed=3", "++optimizer.lr=1e-3"),
        ("+optimizer.amsgrad=true", "~optimizer.fused", "~task.form"),
        ("metric=[]", "objective=[]", "logger=[]", "site=[tokens,layer_1]"),
        ("metric=isoscore", "logger=[wandb]", "logger.wandb.group=x"),
        ("seed='3'", "output_dir='a b'", "cache_dir=null", "threads=null"),
        ("output_dir=${data.batch_size}/x", "hydra.sweep.dir=elsewhere"),
        ("experiment=demo", "optimizer.lr=1e-5"),
        ("optimizer.betas=[0.9,0.99]", "data={batch_size:8,batching:random}"),
        ("objective.cosreg.weight=0.5", "objective=[cosreg]"),
        ("source=local", "source.root=/data", "site.0=tokens"),  # whose value is in no variable
    ],
)
def test_what_hydra_takes_is_taken(overrides):
    assert errors(*overrides) == []
    assert wrong_overrides([*BASE, *overrides]) == []


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_order_of_groups_and_keys_does_not_matter(order):
    given = ("encoder.width=16", "encoder=tiny", "source=demo")
    assert judged([given[k] for k in order])[0].encoder.width == 16
    wrong = ("task=wicc", "encoder.widht=16", "sede=1")
    found = errors(*(wrong[k] for k in order))
    hint = "no key encoder.widht; did you mean encoder.width?"
    assert_reported(found, ("task=wicc", hint, "no key sede"))


@pytest.mark.parametrize(
    ("overrides", "starts"),
    [
        (("seed=0,1,2", "task=rte,wic", "metric=[isoscore],[partition]"), ()),
        (("seed=range(3)", "task=choice(rte,wic)", "isotropy=glob(c*)"), ()),
        (("task=rte,wicc,stsbb", "sede=3"), ("task=wicc", "task=stsbb", "no key sede")),
        (("task=wicc,rte", "sede=3,4"), ("task=wicc", "no key sede")),
        (("seed=0,x,2",), ("seed=x: ",)),
        (("data.batching=length,sorted",), ("data.batching=sorted: ",)),
        (("metric=[isoscore],[partitoin]",), ("metric=partitoin does not exist; did you mean",)),
        (
            ("seed=range(0,1,0)", "task=glob(x*)"),
            ("seed=range(0,1,0) cannot", "task=glob(x*) cannot"),
        ),
        (("seed=interval(0,1)",), ("seed=interval(0,1) cannot be read: only a search",)),
        (
            ("isotropy=none,clip", "isotropy.n_components=1,2"),
            ("no key isotropy.n_components; another isotropy",),
        ),
    ],
)
def test_a_key_of_several_values_is_judged_value_by_value(overrides, starts):
    assert_reported(wrong_overrides([*BASE, *overrides]), starts)


# ----------------------------------------------------------------------------- files of the user


def test_options_and_keys_of_a_folder_of_the_user(own_files):
    own_files("pooling/mine", "_target_: isotrain.model.pooling.MeanPooling\n")
    folder = own_files("task/mine", "_target_: isotrain.tasks.wic.WiC\nform: bi\nhalf: 1\n")
    assert errors("pooling=mine", config_dir=folder) == []
    assert {*options_of("pooling", folder)} == {*options_of("pooling"), "mine"}
    (found,) = errors("pooling=min", config_dir=folder)
    assert found.startswith("pooling=min does not exist; did you mean mi")
    (found,) = errors("task.half=1", config_dir=folder)
    assert found.startswith("no key task.half; ")
    own_files("pooling/below/other", "_target_: isotrain.model.pooling.MeanPooling\n")
    assert errors("pooling=below/other", config_dir=folder) == []
    assert_reported(errors("pooling=below/other", "sede=1", config_dir=folder), ("no key sede",))
    (found,) = errors("pooling=mine")
    assert found.startswith("pooling=mine does not exist; ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sede: 3", ["sede"]),
        ("seed: many", ["seed", "many"]),
        ("seed: [3", ["experiment/mine"]),
        ("seed: 3\nseed: 4", ["experiment/mine", "seed"]),
        ("seed: ${nothing}", ["seed", "nothing"]),
        ("defaults: [{override /task: wicc}]", ["task/wicc"]),
        ("data: {batch_size: 0}", ["data.batch_size must be at least 1"]),
        ("encoder: {_target_: os.getcw}", ["encoder._target_=os.getcw: os has no getcw"]),
    ],
)
def test_a_wrong_file_for_the_whole_run_is_reported_in_words(own_files, text, words):
    folder = own_files("experiment/mine", f"# @package _global_\n{text}\n")
    found = "\n".join(errors("experiment=mine", config_dir=folder))
    for word in words:
        assert word in found


def test_a_folder_of_files_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"--config-dir .*/none is not a folder"):
        compose_run(["sede=1"], f"{tmp_path}/none")


# ------------------------------------------------------------------------------- properties

FULL = (*BASE, "isotropy=cluster_pca", "objective=[cosreg]", "logger=[wandb]", "freezing=first_n")


def legal_keys(node, path=""):
    for key, value in node.items():
        if not str(key).startswith("_"):
            name = f"{path}.{key}" if path else str(key)
            yield name
            if isinstance(value, DictConfig):
                yield from legal_keys(value, name)


KEYS = sorted(key for key in legal_keys(compose_run(FULL)) if not key.startswith("names."))
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # to shrink an example takes minutes
LETTERS = st.sampled_from(string.ascii_lowercase + "_")


@st.composite
def slips(draw):
    """A legal key, the segment that a slip of one letter changes, and the changed key."""
    key = draw(st.sampled_from(KEYS))
    segments = key.split(".")
    number = draw(st.integers(0, len(segments) - 1))
    word = segments[number]
    at = draw(st.integers(0, len(word) - 1))
    letter = draw(LETTERS)
    changed = draw(
        st.sampled_from(
            [
                word[:at] + letter + word[at:],
                word[:at] + word[at + 1 :],
                word[:at] + letter + word[at + 1 :],
                word[:at] + word[at : at + 2][::-1] + word[at + 2 :],
            ]
        )
    )
    slipped = ".".join([*segments[:number], changed, *segments[number + 1 :]])
    assume(changed and slipped not in KEYS)
    return key, word, slipped


@given(slips())
@settings(max_examples=15, phases=PHASES)
@example(("objective.cosreg.weight", "cosreg", "objective.cosrg.weight"))
def test_a_slip_of_one_letter_is_reported_with_the_right_word(slip):
    _key, word, slipped = slip
    (found,) = errors(f"{slipped}=1", base=FULL)
    assert found.startswith(f"no key {slipped}; ")
    if not re.search(rf"\b{re.escape(word)}\b", found.partition(";")[2]):  # another is as near
        (message,) = re.findall(r"did you mean ([\w.]+)\?", found)
        assert near(slipped, message.rpartition(".")[2]) >= near(slipped, word), found


def near(slipped, word):
    return SequenceMatcher(None, slipped.rpartition(".")[2], word).ratio()


JUNK = st.text(
    alphabet=string.ascii_letters + string.digits + "=+~@,.:/\\'\"[]{}()$ _-é\t*?", max_size=14
)


@given(st.sampled_from(KEYS), st.sampled_from(["", "+", "++", "~"]), JUNK)
@settings(max_examples=15, phases=PHASES)
@example("isotropy.rho", "", "x")
@example("~", "", "3")
@example("", "", "")
def test_junk_raises_nothing_but_what_is_reported(key, prefix, text):
    for line in (f"{prefix}{key}={text}", text):
        found = errors(line, base=FULL)
        assert all(error.strip() for error in found)
