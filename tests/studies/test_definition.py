"""Study files: those of the package, those of a user, their grids, and what is wrong in one."""

import re

import pytest
import yaml

from isotrain.config.shipped import names, text_of
from isotrain.runs.stored import PlanError
from isotrain.studies.definition import grid_methods, load_study

RIGHT = {
    "tasks": {"rte": ["task=rte"]},
    "methods": {"none": ["isotropy=none"], "mean": ["isotropy=mean"]},
    "baseline": "none",
    "seeds": [0, 1],
}


def write(path, **changes):
    """A study's file; a key that is None is left out."""
    content = {key: value for key, value in {**RIGHT, **changes}.items() if value is not None}
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return str(path)


def errors(path, **changes):
    with pytest.raises(PlanError) as message:
        load_study(write(path, **changes))
    return str(message.value).splitlines()


@pytest.mark.parametrize("name", names("studies"))
def test_each_file_opens_with_question_command_and_expectation(name):
    study, opening = load_study(name), re.match(r"(#.*\n)+", text_of("studies", name))[0]
    assert (study.name, study.question) == (name, " ".join(study.question.split()))
    assert len(study.pairs) * len(study.seeds) >= 4
    for part in ("Question:", f"Command:  isotrain run {name}", "Device:", "Expected:"):
        assert part in opening


def test_overrides_of_all_runs_then_of_the_task_then_of_the_method(tmp_path):
    file = write(tmp_path / "my.yaml", overrides=["seed=3"], tasks={"a": ["task=rte"], "b": []})
    assert load_study(file).pairs == [
        ("a", "none", ["seed=3", "task=rte", "isotropy=none"]),
        ("a", "mean", ["seed=3", "task=rte", "isotropy=mean"]),
        ("b", "none", ["seed=3", "isotropy=none"]),
        ("b", "mean", ["seed=3", "isotropy=mean"]),
    ]


def test_margin_and_published_scores(tmp_path):
    published = {"tasks": {"rte": {"none": 0.653, "mean": 0.64}}, "source": "Someone 2023, table 2"}
    study = load_study(write(tmp_path / "my.yaml", margin=0.01, published=published))
    assert (study.margin, study.published.split) == (0.01, "dev")
    assert study.published.tasks == {"rte": {"none": 0.653, "mean": 0.64}}
    assert study.published.source == "Someone 2023, table 2"
    plain = load_study(write(tmp_path / "plain.yaml"))
    assert (plain.margin, plain.published) == (None, None)


def test_a_study_yaml_is_called_as_its_folder(tmp_path, monkeypatch):
    (tmp_path / "my-heads").mkdir()
    write(tmp_path / "my-heads" / "study.yaml")
    monkeypatch.chdir(tmp_path / "my-heads")
    assert load_study("study.yaml").name == load_study("../my-heads/study.yaml").name == "my-heads"


@pytest.mark.parametrize("name", ["a b.yaml", "x,y.yaml", ".hidden.yaml"])
def test_names_that_are_no_folder(tmp_path, name):
    (message,) = errors(tmp_path / name)
    assert message.startswith(f"study {name[:-5]}: name: String should match pattern ")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"method": {}}, "no key method; did you mean methods?"),
        ({"seeds": []}, "seeds: at least one seed, and each once, got '[]'"),
        ({"seeds": [1, 1]}, "seeds: at least one seed, and each once, got '[1, 1]'"),
        ({"seeds": [True]}, "seeds.0: Input should be a valid integer, got 'True'"),
        ({"baseline": "nome"}, "baseline: no nome; did you mean none?"),
        (
            {"methods": {"none": [], False: []}},
            "methods: False is no name: letters, digits and _.+=- ",
        ),
        (
            {"methods": {"none": [], "a/b": []}},
            "methods: 'a/b' is no name: letters, digits and _.+=- ",
        ),
        ({"methods": {}}, "methods: at least one, such as none: [isotropy=none]"),
        ({"tasks": {}}, "tasks: "),
        ({"overrides": "x=1"}, "overrides: Input should be a list, got 'x=1'"),
        ({"grid": {"x": []}}, "grid.x: "),
        ({"grid": {"isotropy": ["none"]}}, "grid makes the method none again; write methods that"),
        ({"grid": {"x.y": [1, 1]}}, "grid makes the method y_1 again"),
        ({"grid": {"x.y": ["a/b", "a,b"]}}, "grid makes the method y_a_b again"),
        ({"grid": {"x": [{"a": 1}]}}, "grid.x: {'a': 1} is no value that an override can give"),
        ({"methods": None, "grid": {"x": [1]}}, "baseline: no none; there are x_1"),
        ({"margin": 0}, "margin: Input should be greater than 0, got '0'"),
        ({"margin": 0.1, "margin_share": 0.2}, "margin and margin_share state the margin twice"),
        ({"published": {"tasks": {"rte": {"none": 0.6}}}}, "published.source: Field required"),
        (
            {"published": {"tasks": {"rtf": {"none": 0.6}}, "source": "x"}},
            "published.tasks: no rtf; did you mean rte?",
        ),
        (
            {"published": {"tasks": {"rte": {"meen": 0.6}}, "source": "x"}},
            "published.tasks.rte: no meen; did you mean mean?",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line_with_key_rule_and_value(tmp_path, change, said):
    (message,) = errors(tmp_path / "my.yaml", **change)
    assert message.startswith(f"study my: {said}")


@pytest.mark.parametrize("text", ["tasks: {rte: [site=[tokens]]}", "- a", "", "\x00"])
def test_what_is_no_yaml_of_keys(tmp_path, text):
    (tmp_path / "my.yaml").write_text(text)
    with pytest.raises(PlanError, match=r"must have keys|while parsing|not allowed"):
        load_study(str(tmp_path / "my.yaml"))


@pytest.mark.parametrize(
    "text", [r'question: "a \udc80"', r'grid: {a: ["\udc80"]}', "tasks: &a [*a]"]
)
def test_what_no_record_can_hold(tmp_path, text):
    (tmp_path / "my.yaml").write_text(text)
    with pytest.raises(PlanError, match=r"my.yaml: texts must be UTF-8, and no alias"):
        load_study(str(tmp_path / "my.yaml"))


def test_every_error_at_once(tmp_path):
    message = errors(tmp_path / "my.yaml", seeds=[], margin=0, method=1)
    assert len(message) == 3
    assert errors(tmp_path / "my.yaml", methods=None, seeds=None) == [
        "study my: seeds: Field required"  # the rest is of a study that there is none of
    ]


def test_the_product_with_the_last_key_changing_first():
    methods = grid_methods(
        {
            "isotropy": ["cluster_pca"],
            "site": [["pooled"], ["tokens", "layer_3"]],
            "isotropy.strength": [0.5, 1.0],
        }
    )
    assert [name for name, _ in methods] == [
        "cluster_pca_pooled_strength_0.5",
        "cluster_pca_pooled_strength_1.0",
        "cluster_pca_tokens_layer_3_strength_0.5",
        "cluster_pca_tokens_layer_3_strength_1.0",
    ]
    assert methods[2][1] == (
        "isotropy=cluster_pca",
        "site=[tokens,layer_3]",
        "isotropy.strength=0.5",
    )


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        ("objective.istar.weight", -1.0, "weight_minus_1.0"),
        ("training.solved_head", False, "solved_head_false"),
        ("isotropy.queue_rows", None, "queue_rows_null"),
        ("+isotropy.softness", 1, "softness_1"),
        ("encoder.name", "a/b-c", "name_a_b_c"),
    ],
)
def test_names(key, value, name):
    assert [own for own, _ in grid_methods({key: [value]})] == [name]
