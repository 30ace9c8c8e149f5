"""The table of a search, and the study that confirms its best trial."""

import csv

import pytest
from isotrain.studies.plan import plan_jobs
from optuna.trial import TrialState

from isotrain.reporting.search_report import write_report
from isotrain.runs.stored import PlanError
from isotrain.studies.definition import load_study, question_of
from isotrain.studies.trials import trials_of
from tests.studies.trials import next_trial, opened

CLIP = "[task=rte, encoder=tiny, source=demo, isotropy=clip]"


def tell(study, plan, score, **facts):
    taken = next_trial(study, plan)
    for key, value in facts.items():
        taken.trial.set_user_attr(key, value)
    if isinstance(score, TrialState):
        study.tell(taken.trial, state=score)
    else:
        study.tell(taken.trial, score)


def table(few):
    return (few.folder / "table.md").read_text()


def reported(few, *scores):
    """The table of trials that ended with these scores or states."""
    plan = few.plan()
    with opened(plan) as study:
        for score in scores:
            tell(study, plan, score)
        write_report(plan, trials_of(study), study)
    return table(few)


def test_the_best_is_told_as_chosen_and_confirmed_on_fresh_seeds(few, capsys):
    few.says(
        space="{isotropy.n_components: {low: 1, high: 4}}",
        overrides=CLIP,
        sampler="grid",
        seeds="[0, 3]",
        n_trials=5,
        margin=0.01,
    )
    plan = few.plan()
    with opened(plan) as study:
        with pytest.raises(PlanError, match="no trial of search few has ended"):
            write_report(plan, trials_of(study), study)
        tell(study, plan, 0.6, scores=[0.5, 0.7], code=["abc"], why="")
        tell(study, plan, 0.7, scores=[0.8, 0.6], code=["abc"], why="")
        tell(study, plan, TrialState.PRUNED, why="worse than the median")
        tell(study, plan, TrialState.FAIL, why="exit | code 3")
        write_report(plan, trials_of(study), study)
        first = table(few)
        write_report(plan, trials_of(study), study)
    assert table(few) == first
    assert first in capsys.readouterr().out
    assert "4 of 4 points, 4 trials: 2 complete, 1 pruned, 1 failed." in first
    assert "Trial 1 is the best of 2 on dev (0.7000) and was chosen for that" in first
    assert "the best of several scores lies above what" in first
    assert "mean over seeds 0, 3" in first
    assert "different code" not in first
    order = [line.split("|")[1].strip() for line in first.splitlines() if line.startswith("| ")]
    assert order == ["trial", "-----", "1", "0", "2", "3"]
    lines = list(csv.DictReader((few.folder / "trials.csv").read_text().splitlines()))
    assert [line["val/accuracy"] for line in lines] == ["0.6", "0.7", "", ""]
    assert [line["seed_3"] for line in lines] == ["0.7", "0.6", "", ""]
    assert [line["state"] for line in lines] == ["complete", "complete", "pruned", "failed"]
    assert lines[3]["why"] == "exit | code 3"
    path = few.folder / "confirm_few_1.yaml"
    assert f"isotrain run {path} output_dir={few.runs}" in first
    confirm = load_study(str(path))
    assert confirm.methods == {  # without its one key the winner is the baseline
        "baseline": (),
        "winner": ("isotropy.n_components=2",),
    }
    assert confirm.baseline == "baseline"
    assert confirm.margin == 0.01
    assert "chosen by val/accuracy" in path.read_text()
    assert confirm.seeds == (1, 2, 4, 5, 6, 7, 8, 9)
    assert f"output_dir={few.runs}" not in confirm.overrides, "no file may name it"
    assert confirm.tasks == {"rte": ("task=rte",)}
    assert question_of(path.read_text()) == (
        "does what search few found hold on seeds it has not used?"
    )
    assert "winner - baseline: what all values of the search do together" in first
    assert "without_" not in first


def test_the_lowest_is_best_where_the_direction_says_so(few):
    few.says(objective="val/loss", direction="min", pruner="median")
    text = reported(few, 0.6, 0.4, 0.5, 0.4)
    assert "Trial 1 is the best of 4" in text, "the first of equals"
    assert "the best of several scores lies below what" in text
    assert (
        "No study is written to confirm it: a study compares what the task monitors, val/accuracy, "
        "and the trials were chosen by val/loss." in text
    )
    assert not list(few.folder.glob("confirm*"))
    assert "whose best score so far was above the median of at least 3" in text
    assert text.index("| 1 ") < text.index("| 2 ") < text.index("| 0 ")


def test_options_to_compare_are_methods_of_equal_standing(few):
    space = "{objective: [[], [simcse], [istar]], optimizer.lr: {low: 0.1, high: 0.2, step: 0.1}}"
    few.says(space=space, sampler="grid", n_trials=6)  # compared is the objective, by itself
    text = reported(few, 0.1, 0.2, 0.4, 0.3, TrialState.FAIL, TrialState.PRUNED)
    confirm = load_study(str(few.folder / "confirm_few_1_2.yaml"))
    assert confirm.methods == {
        "none": ("objective=[]", "optimizer.lr=0.2"),
        "simcse": ("objective=[simcse]", "optimizer.lr=0.1"),
    }
    assert confirm.baseline == "none"
    assert confirm.margin is None, "the search states none"
    assert "To compare none, simcse, on dev and test" in text
    assert "A difference is between options of objective as each was tuned" in text
    told = "Each method is the best of its complete trials: none 2 of 2, simcse 2 of 2."
    assert told in text
    assert f"\n# Shows:    {told}\n" in (few.folder / "confirm_few_1_2.yaml").read_text()


def test_what_each_key_does_is_shown_by_methods_without_it(few):
    """Beside the winner: one method without each key, and without what is there only beside it."""
    space = (
        "{pooling: [cls, mean], data.batch_size: [8, 16], optimizer.lr: [1.0e-3, 5.0e-5], "
        "optimizer.weight_decay: {options: [0.2, 0.3], when: {pooling: mean}}}"
    )
    few.says(space=space, sampler="random", n_trials=1)
    plan = few.plan()
    values = {
        "pooling": "mean",
        "data.batch_size": "16",
        "optimizer.lr": "5e-05",  # its default: a method without it would be the winner again
        "optimizer.weight_decay": "0.3",
    }
    with opened(plan) as study:
        study.enqueue_trial(values)
        tell(study, plan, 0.7)
        write_report(plan, trials_of(study), study)
    confirm = load_study(str(few.folder / "confirm_few_0.yaml"))
    assert confirm.baseline == "baseline"
    assert confirm.methods == {
        "baseline": (),
        "winner": tuple(f"{key}={value}" for key, value in values.items()),
        "without_pooling": ("data.batch_size=16", "optimizer.lr=5e-05"),
        "without_batch_size": (
            *("pooling=mean", "optimizer.lr=5e-05", "optimizer.weight_decay=0.3"),
        ),
        "without_weight_decay": ("pooling=mean", "data.batch_size=16", "optimizer.lr=5e-05"),
    }
    names = "without_pooling, without_batch_size, without_weight_decay"
    assert f"- {names}: the winner with that key at its default." in table(few)
    assert len(plan_jobs(confirm)) == 5 * 8, "it can run"


def test_what_the_overrides_alone_give_needs_no_confirmation(few):
    few.says(space="{isotropy.n_components: [3, 4]}", overrides=CLIP, sampler="grid")
    assert "there is nothing to confirm" in reported(few, 0.9, 0.8)
    assert not list(few.folder.glob("confirm*"))


def test_importances_say_which_key_matters_once_there_are_enough_trials(few):
    few.says(
        space="{optimizer.lr: {low: 0.0, high: 1.0}, optimizer.eps: {low: 0.0, high: 1.0}}",
        sampler="random",
        n_trials=24,
    )
    plan = few.plan()
    with opened(plan) as study:
        for number in range(24):
            taken = next_trial(study, plan)
            study.tell(taken.trial, taken.values["optimizer.lr"])
            if number == 18:
                write_report(plan, trials_of(study), study)
                assert "PED-ANOVA" not in table(few)
        write_report(plan, trials_of(study), study)
    (line,) = [line for line in table(few).splitlines() if "PED-ANOVA" in line]
    assert "24 complete trials" in line
    words = line.replace(",", "").replace(".\n", "").split()
    share = float(words[words.index("optimizer.lr") + 1].rstrip("."))
    assert share > 0.6, line
