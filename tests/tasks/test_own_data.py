"""Tasks by keys alone: columns, classes, scales, prefixes and losses of any data."""

import json
import math
import os
from pathlib import Path

import pytest
import torch
from sklearn.metrics import f1_score, matthews_corrcoef

from isotrain.config.compose import compose_run, plain, task_name
from isotrain.runner import run
from isotrain.tasks.classification import Classification, classes_of
from isotrain.tasks.data.sources import HubSource, LocalSource, PathSource
from isotrain.tasks.presets import preset
from isotrain.tasks.regression import Regression
from isotrain.training.revision import source_of, task_of
from tests.parts import TASKS, WITHOUT_DATA

PAIR = ("task=pair_classification", "task.text=[premise,hypothesis]", "task.label=gold")


@pytest.fixture
def folder(tmp_path):
    """`folder(train=[...], dev=[...])`: a path with these rows as jsonl."""

    def write(**splits):
        for split, rows in splits.items():
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (tmp_path / f"{split}.jsonl").write_text(text)
        return PathSource(str(tmp_path))

    return write


def row(label, text="t"):
    return {"text": text, "label": label}


# Classes


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["pos", "neg"], ("neg", "pos")),
        ([10, 9, 1], ("1", "9", "10")),
        (["10", "9"], ("9", "10")),
        ([True, False], ("False", "True")),
        ([-1, 0, 1], ("-1", "0", "1")),
        (["None", "NA"], ("NA", "None")),
    ],
)
def test_the_classes_are_the_labels_of_train(folder, labels, classes):
    task = Classification()
    rows = task.load(folder(train=list(map(row, labels)), dev=[row(labels[0])]))
    assert task.data_set.classes == classes
    assert task.labels() == f"classes: {', '.join(classes)}"
    assert [r["label"] for r in rows["train"]] == [classes.index(str(one)) for one in labels]
    assert task.build_head(8, 1)(torch.zeros(1, 1, 8)).shape == (1, len(classes))


def test_classes_that_differ_in_spaces_alone_are_printed_in_quotes(folder):
    task = Classification()
    task.load(folder(train=[row("a"), row("a "), row("b,c")], dev=[row("a")]))
    assert task.labels() == "classes: a, 'a ', 'b,c'"


def test_hidden_labels_of_test_are_left_out_and_counted(folder):
    task = Classification()
    test = [row("a"), row(-1), row(""), row(None), row("b")]
    rows = task.load(folder(train=[row("a"), row("b")], dev=[row("a")], test=test))
    assert len(rows["test"]) == 2
    assert task.left_out == {"test: no gold": 3}


def test_minus_one_that_is_a_class_is_not_hidden(folder):
    task = Classification()
    rows = task.load(folder(train=[row(-1), row(1)], dev=[row(1)], test=[row(-1), row("")]))
    assert [r["label"] for r in rows["test"]] == [0]


def test_a_label_that_train_hides_is_no_class(folder):
    task = Classification(data_set={"hides": ["train", "test"]})
    rows = task.load(folder(train=[row("good"), row(""), row("bad"), row(-1)], dev=[row("bad")]))
    assert task.data_set.classes == ("bad", "good")
    assert [r["label"] for r in rows["train"]] == [1, 0]
    assert task.left_out == {"train: no gold": 2}


WRONG = {
    "a label that train lacks": (
        {"train": [row("a"), row("b")], "dev": [row("a"), row("c")]},
        r"dev\.jsonl:2: label: must be one of a, b, got 'c'",
    ),
    "no label in train": (
        {"train": [row("a"), row(None), row("b")], "dev": [row("a")]},
        r"train\.jsonl:2: lacks label; it has text",
    ),
    "an empty label": (
        {"train": [row("a"), row(""), row("b")], "dev": [row("a")]},
        r"train\.jsonl:2: label: must name a class, got ''",
    ),
    "another column": (
        {"train": [{"texts": "t", "label": "a"}, row("b")], "dev": [row("a")]},
        r"train\.jsonl:1: lacks text; did you mean texts\?",
    ),
    "a number for a text": (
        {"train": [row("a", 7), row("b")], "dev": [row("a")]},
        r"train\.jsonl:1: text: Input should be a valid string, got 7",
    ),
    "no text at all": (
        {"train": [row("a"), row("b", "  ")], "dev": [row("a")]},
        r"train\.jsonl:2: text must hold a text, got none",
    ),
    "scores": ({"train": [row(0.5), row(1)], "dev": [row(1)]}, "scores such as 0.5; use task=reg"),
    "a label by its number": (
        {"train": [row("a"), row("b")], "dev": [row(1)]},
        r"dev\.jsonl:1: label: must be one of a, b, got 1$",
    ),
    "a number that is no class": (
        {"train": [row(1), row(2), row(3)], "dev": [row(0)]},
        r"dev\.jsonl:1: label: must be one of 1, 2, 3, got 0$",
    ),
    "one number in two ways": (
        {"train": [row(1.0), row(2), row(1)], "dev": [row(2)]},
        r"label must write each number in one way, and train has \['1', '1.0', '2'\]",
    ),
    "another label column": (
        {"train": [{"text": "t", "verdict": "a"}], "dev": [row("a")]},
        r"train\.jsonl:1: lacks label; it has text, verdict",
    ),
    "a list": (
        {"train": [row(["a"]), row("b")], "dev": [row("b")]},
        r"train\.jsonl:1: label: must name a class, got \['a'\]",
    ),
    "no number": (
        {"train": [row(0), row(math.nan)], "dev": [row(0)]},
        r"train\.jsonl:2: label: must name a class, got nan",
    ),
    "one class": ({"train": [row("a")], "dev": [row("a")]}, r"two classes or more, .* \['a'\]"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_with_file_and_line(folder, case):
    splits, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        Classification().load(folder(**splits))


def test_one_of_two_texts_may_be_empty(folder):
    found = [{"text": "", "other": "t", "label": i} for i in range(2)]
    task = Classification(text=["text", "other"])
    assert len(task.load(folder(train=found, dev=found))["dev"]) == 2


def test_a_column_of_the_name_that_rows_use_is_rejected(folder):
    found = [{"at": "t", "label": i} for i in range(2)]
    with pytest.raises(ValueError, match="a column of a task must not be named at"):
        Classification(text=["at"]).load(folder(train=found, dev=found))


def test_numbers_are_ordered_by_size_and_names_by_letters():
    assert classes_of({"1e2", "5"}, "label") == ("5", "1e2")
    assert classes_of({"10", "9", "a"}, "label") == ("10", "9", "a")


def test_a_number_of_a_class_that_is_called_by_none(folder):
    rows = [row(0), row("b"), row(1)]
    found = Classification(classes=["a", "b"]).load(folder(train=rows, dev=rows))
    assert [r["label"] for r in found["train"]] == [0, 1, 1]
    with pytest.raises(ValueError, match=r"must be one of 1, 2, got 0"):
        Classification(classes=[1, 2]).load(folder(train=[row(0)], dev=rows))


def test_arguments_that_contradict_each_other_are_rejected():
    with pytest.raises(ValueError, match=r"task.classes must be different names, got \['a', 'a'\]"):
        Classification(classes=["a", "a"])
    with pytest.raises(ValueError, match=r"name them by task.classes"):
        Classification(data_set={"classes": ["a", "b"]})
    with pytest.raises(ValueError, match=r"task.label=text must be another column"):
        Classification(label="text")
    with pytest.raises(ValueError, match="form=bi compares the vectors of two texts"):
        Classification(form="bi")
    with pytest.raises(ValueError, match="prefix must be a text, or one for each of"):
        Classification(text=["a", "b"], prefix=["q", "p", "r"])


# Losses and scores


def test_weights_and_smoothing_act_in_training_alone():
    task = Classification(classes=["a", "b"], class_weights="balanced", label_smoothing=0.2)
    task.see_training([{"label": 0}] * 3 + [{"label": 1}])
    assert task.weight_C.tolist() == pytest.approx([4 / 6, 2.0])
    logits, labels = torch.tensor([[0.3, -1.0], [0.5, 0.1]]), torch.tensor([0, 1])
    log_p = logits.log_softmax(1)
    assert task.loss(logits, labels).item() == pytest.approx(
        -(log_p[0, 0] + log_p[1, 1]).item() / 2
    )
    loss_b = -(torch.tensor([[0.9, 0.1], [0.1, 0.9]]) * log_p).sum(dim=1)
    expected = (torch.tensor([4 / 6, 2.0]) * loss_b).mean()  # the weight of the example's class
    assert task.training_loss(logits, labels).item() == pytest.approx(expected.item())
    halves = [task.training_loss(logits[i : i + 1], labels[i : i + 1]) for i in (0, 1)]
    assert sum(halves).item() / 2 == pytest.approx(expected.item())  # as of several processes
    plain_task = Classification(classes=["a", "b"])
    assert torch.equal(plain_task.training_loss(logits, labels), plain_task.loss(logits, labels))
    with pytest.raises(ValueError, match=r"a weight for each of 2 classes \(a, b\), got \[1.0\]"):
        Classification(classes=["a", "b"], class_weights=[1.0]).see_training([])


def test_weights_of_classes_by_their_names():
    task = Classification(classes=["False", "True"], class_weights={True: 3})
    task.see_training([])
    assert task.weight_C.tolist() == [1, 3]
    assert task.labels() == "classes: False (weight 1), True (weight 3)"
    with pytest.raises(ValueError, match="class_weights names c; the classes are a, b"):
        Classification(classes=["a", "b"], class_weights={"c": 2}).see_training([])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_are_those_of_scikit_learn(n_classes):
    names = [*map(str, range(n_classes))]
    task = Classification(classes=names, metrics=["matthews", "f1", "accuracy"])
    assert task.monitor == "matthews"
    generator = torch.Generator().manual_seed(0)
    label, predicted = torch.randint(n_classes, (2, 200), generator=generator)
    scores = task.metrics()
    scores.update(predicted, label)
    found = {name: float(value) for name, value in scores.compute().items()}
    assert found == pytest.approx(
        {
            "matthews": matthews_corrcoef(label, predicted),
            "f1": f1_score(label, predicted, average="binary" if n_classes == 2 else "macro"),
            "accuracy": (label == predicted).double().mean().item(),
        },
        abs=1e-6,
    )


def test_a_prefix_stands_before_each_text(tokenizer):
    rows = [{"a": "x", "b": "y", "label": 0}]
    for prefix, expected in (("query: ", "query: "), (["query: ", "passage: "], "passage: ")):
        task = Classification(text=["a", "b"], classes=["0", "1"], form="bi", prefix=prefix)
        assert task.texts(rows[0]) == ("query: x", f"{expected}y")
        bare = Classification(text=["a", "b"], classes=["0", "1"], form="bi")
        given = [{"a": "query: x", "b": f"{expected}y", "label": 0}]
        assert task.encode(rows, tokenizer) == bare.encode(given, tokenizer)


def test_a_run_trains_by_the_weighted_loss(built):
    """And evaluates by the plain one."""
    experiment = built("task=rte", "metric=[]", "task.class_weights=balanced")
    task, labels = experiment.module.task, [e.label for e in experiment.data.examples["train"]]
    counts = [labels.count(c) for c in range(2)]
    assert task.weight_C.tolist() == pytest.approx([len(labels) / (2 * n) for n in counts])
    task.weight_C = torch.zeros(2)
    experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    assert float(experiment.trainer.callback_metrics["train/loss"]) == 0
    assert float(experiment.trainer.callback_metrics["val/loss"]) > 0


# Scores

HIDES = {"hides": ["train", "test"]}


def scored(*scores):
    return [{"text": "t", "score": score} for score in scores]


def test_the_scale_is_given_or_the_range_of_train(folder):
    task, source = Regression(), folder(train=scored(2, 4, 3), dev=scored(5.0, 2))
    rows = task.load(source)
    assert [task.label(one) for one in rows["train"] + rows["dev"]] == [0, 1, 0.5, 1.5, 0]
    assert task.labels() == "scores: 2 to 4 of score are 0 to 1"
    task = Regression(low=0, high=8)
    assert task.labels() == ""
    assert [task.label(one) for one in task.load(source)["train"]] == [0.25, 0.5, 0.375]
    with pytest.raises(ValueError, match=r"dev\.jsonl:1: score must lie in 0 to 4, got 5"):
        Regression(low=0, high=4).load(source)
    with pytest.raises(ValueError, match=r"task.low must be below task.high, got 2 and 2"):
        Regression().load(folder(train=scored(2, 2), dev=scored(2)))


def test_minus_one_is_hidden_unless_the_scale_has_it(folder):
    source = folder(train=scored(0, 5), dev=scored(1), test=scored(-1, 3, None))
    assert [row["score"] for row in Regression().load(source)["test"]] == [3]
    source = folder(train=scored(-1, 1), dev=scored(1), test=scored(-1, 0))
    assert [row["score"] for row in Regression().load(source)["test"]] == [-1, 0]
    source, task = folder(train=scored(3, -1, 1), dev=scored(2)), Regression(data_set=HIDES)
    assert [row["score"] for row in task.load(source)["train"]] == [3, 1]
    assert task.labels() == "scores: 1 to 3 of score are 0 to 1"
    with pytest.raises(ValueError, match=r"test\.jsonl:1: lacks score"):
        Regression().load(folder(test=scored(None)))


# Which data set, and its name


def test_what_names_a_run(composed):
    def name(*overrides):
        cfg = composed(*overrides)
        return task_name(plain(cfg)), task_of(cfg).name

    assert name("task=classification", "data.path=a/My reviews.csv.gz") == ("My_reviews",) * 2
    assert name("task=rte", "data.path=mine") == ("rte",) * 2
    assert name("task=classification", "data.hub=glue", "data.name=sst2") == ("sst2",) * 2
    assert name("task=classification", "data.hub=a/imdb") == ("imdb",) * 2
    assert name("task=classification", "task.name=../x") == ("_x",) * 2
    assert name("task=wic") == ("wic", "wic")


class OwnHub(HubSource):
    """A source of one's own."""


def test_path_then_hub_then_source(composed):
    cfg = composed("data.path=a.csv", "data.split=[0.6,0.2,0.2]", "data.split_seed=3")
    source = source_of(cfg)
    assert isinstance(source, PathSource)
    assert (source.shares["dev"], source.split_seed) == (0.2, 3)
    source = source_of(composed("data.hub=glue", "data.name=sst2", "data.revision=main"))
    assert isinstance(source, HubSource)
    assert (source.hub, source.name, source.revision) == ("glue", "sst2", "main")
    source = source_of(composed("source=hub", "data.split=[0.5,0.25,0.25]", "data.split_seed=7"))
    assert (source.shares["dev"], source.split_seed) == (0.25, 7)
    own = source_of(composed(f"source._target_={__name__}.OwnHub", "+source.hub=me/rte"))
    assert (type(own), own.hub, own.split_seed) == (OwnHub, "me/rte", 0)
    own = source_of(composed(f"source._target_={__name__}.OwnHub", "data.split_seed=7"))
    assert (type(own), own.split_seed) == (OwnHub, 7)
    with pytest.raises(ValueError, match="DemoSource has its own; leave them out"):
        source_of(composed("source=demo", "data.split_seed=7"))
    for wrong in (("data.path=a", "data.hub=b"), ("data.name=sst2",)):
        with pytest.raises(ValueError, match=r"choose a data set of the hub, and data\."):
            source_of(composed(*wrong))


GLUE = {  # as the hub has them: texts, classes in the order of their numbers
    "cola": (["sentence"], ["unacceptable", "acceptable"], ["matthews", "accuracy"]),
    "sst2": (["sentence"], ["negative", "positive"], ["accuracy"]),
    "mrpc": (["sentence1", "sentence2"], ["not_equivalent", "equivalent"], ["accuracy", "f1"]),
    "qqp": (["question1", "question2"], ["not_duplicate", "duplicate"], ["accuracy", "f1"]),
    "mnli": (["premise", "hypothesis"], ["entailment", "neutral", "contradiction"], ["accuracy"]),
    "qnli": (["question", "sentence"], ["entailment", "not_entailment"], ["accuracy"]),
    "rte": (["sentence1", "sentence2"], ["entailment", "not_entailment"], ["accuracy"]),
    "wnli": (["sentence1", "sentence2"], ["not_entailment", "entailment"], ["accuracy"]),
    "boolq": (["question", "passage"], ["False", "True"], ["accuracy"]),
    "sicke": (["sentence_A", "sentence_B"], ["ENTAILMENT", "NEUTRAL", "CONTRADICTION"], None),
}


@pytest.mark.parametrize("name", GLUE)
def test_a_preset_reads_what_the_hub_has(name, monkeypatch):
    import datasets

    from isotrain.tasks.data import sources

    texts, classes, metrics = GLUE[name]
    own = dict.fromkeys(texts, "x")
    found = [{**own, "label": c, "idx": c} for c in range(len(classes))]
    hidden = [{**own, "label": -1, "idx": 0}]
    parts = {"train": found, "validation": found[:1], "test": hidden}
    if name == "mnli":
        parts = {"train": found, "validation_matched": found[:1], "validation_mismatched": found}
        parts |= {"test_matched": hidden, "test_mismatched": hidden}
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: parts)
    monkeypatch.setattr(sources, "commit_of", lambda _hub_id, revision: revision)
    task = preset(name)
    rows = task.load(HubSource())
    assert [len(of) for of in rows.values()] == [len(classes), 1, 0]
    assert [task.data_set.classes[row[task.data_set.target]] for row in rows["train"]] == classes
    assert metrics in (None, task.scores)
    assert task.texts(rows["train"][0]) == ("x",) * len(texts)


def test_every_preset_builds_on_a_task_of_any_data():
    for name in {*TASKS} - WITHOUT_DATA:
        task = preset(name)
        assert task.name == name
        assert all(one.hub_id and one.hub_revision for one in task.data_sets), name


# Whole runs


def scores_of(cfg):
    """All that a run records of its scores, without times."""
    run(cfg)
    (file,) = Path(cfg.output_dir).glob("*/*/metrics.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    left_out = ("time_s", "speed/")
    return [{k: v for k, v in one.items() if not k.startswith(left_out)} for one in lines]


@pytest.fixture
def scores(composed, small, tmp_path):
    """`scores("task=rte")`: the records of a small run, by the overrides."""

    def of(*overrides):
        place = tmp_path / f"runs{len([*tmp_path.iterdir()])}"
        base = [o for o in small if not o.startswith(("source", "output_dir"))]
        return scores_of(composed(*base, *overrides, f"output_dir={place}", "metric=[mean_cosine]"))

    return of


def test_a_csv_of_other_column_names_scores_as_the_preset(scores, data_dir, tmp_path):
    """Cells with commas, quotes, line ends and umlauts too: the same rows, the same numbers."""
    import pandas as pd

    own = tmp_path / "mine"
    own.mkdir()
    preset_rows = LocalSource(str(data_dir))
    for split in ("train", "dev"):
        lines = [r for r in preset_rows.read(preset("rte").data_set, split)]
        odd = ['a, "b"\nc', "NA", "Grüße 😀", "null"]
        for line, text in zip(lines, odd, strict=False):
            line["sentence1"] = text
        frame = pd.DataFrame(lines)[["sentence1", "sentence2", "label"]]
        frame.to_json(own / f"{split}.jsonl", orient="records", lines=True)
        frame.columns = ["premise", "hypothesis", "gold"]
        (own / "csv").mkdir(exist_ok=True)
        frame.to_csv(own / "csv" / f"{split}.csv", index=False)
        (own / f"{split}.jsonl").rename(own / f"{split}_.jsonl")
    (own / "rte").mkdir()
    for split in ("train", "dev"):
        (own / f"{split}_.jsonl").rename(own / "rte" / f"{split}.jsonl")
    expected = scores("task=rte", "source=local", f"source.root={own}")
    assert scores(*PAIR, f"data.path={own / 'csv'}") == expected
    assert len(expected) >= 2


REAL = {  # by keys alone, and the preset
    "rte": ("task=pair_classification",),
    "stsb": ("task=pair_regression", "task.form=bi", "pooling=mean"),
}


@pytest.mark.real_data
@pytest.mark.parametrize("name", REAL)
def test_real_data_by_keys_score_as_the_preset(scores, name):
    root = os.environ["ISOTRAIN_DATA_DIR"]
    few = ("data.n_train=32", "data.n_dev=32", "data.n_test=32")
    own = REAL[name]
    expected = scores(
        *(f"task={name}", "source=local", f"source.root={root}", *few),
        *(text for text in own if text.startswith(("pooling", "task.form"))),
    )
    assert scores(*own, f"data.path={root}/{name}", *few) == expected
    score = "val/spearman" if name == "stsb" else "val/accuracy"
    assert math.isfinite(expected[-1].get(score, expected[0].get(score)))


def test_the_record_says_classes_and_draw(composed, small, tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("text,label\n" + "".join(f"word {i},{'ab'[i % 2]}\n" for i in range(40)))
    base = [o for o in small if not o.startswith("source")]
    cfg = composed(
        *base, "task=classification", f"data.path={file}", f"output_dir={tmp_path / 'r'}"
    )
    run(cfg)
    (folder,) = tmp_path.glob("r/mine/none-*")
    result = json.loads((folder / "result.json").read_text())
    assert result["classes"] == ["a", "b"]
    assert result["n_rows"] == {"train": 32, "dev": 4, "test": 4}
    assert result["drawn_splits"].startswith("32 train, 4 dev, 4 test of 40 rows of mine.csv")
    assert result["data"].startswith("mine.csv (sha256 ")
    assert compose_run([f"data.path={file}"]).data.split_seed == 0


def test_a_source_that_does_not_know_the_task_says_what_to_give(composed):
    for source, message in (("demo", "source=demo has rte"), ("hub", "use data.path=FILE_OR")):
        cfg = composed("task=classification", f"source={source}")
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            task_of(cfg).load(source_of(cfg))
