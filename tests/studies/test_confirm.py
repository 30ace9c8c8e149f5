"""The study that confirms the best trial of a search."""

import pytest
from optuna.trial import TrialState, create_trial

from isotrain.studies.confirm import NOTHING, confirmation
from isotrain.studies.definition import load_study, question_of
from isotrain.studies.search import Record, Search
from isotrain.studies.space import parameters
from isotrain.studies.trials import RUNS

TINY = ["task=rte", "encoder=tiny", "source=demo"]


def confirmed(tmp_path, space, trials, baseline="0", **keys):
    """The confirmation of trials (values, score or state)."""
    more = {"overrides": TINY, "name": "few", "n_trials": len(trials)} | keys
    known = {p.key: p.distribution for p in parameters(space)}
    made = []
    for number, (values, end) in enumerate(trials):
        state = end if isinstance(end, TrialState) else TrialState.COMPLETE
        trial = create_trial(
            params=values,
            distributions={key: known[key] for key in values},
            value=None if state is end else end,
            state=state,
            user_attrs={RUNS: [f"../../rte/few-{number + 1}"]},
        )
        trial.number = number
        made.append(trial)
    record = Record(
        folder=tmp_path,
        search=Search(space=space, **more),
        task="rte",
        objective="val/accuracy",
        direction="max",
        overrides=("output_dir=out",),
        config_dir=None,
        baseline=baseline,
    )
    return confirmation(record, made)


def loaded(tmp_path, found):
    (path := tmp_path / found.file).write_text(found.yaml)
    return load_study(str(path))


def test_the_winner_is_compared_with_the_overrides_on_fresh_seeds(tmp_path):
    ends = [0.6, 0.7, TrialState.PRUNED, TrialState.FAIL, 0.7]
    trials = [({"isotropy.n_components": 1 + k % 4}, end) for k, end in enumerate(ends)]
    more = {"overrides": [*TINY, "isotropy=clip"], "seeds": [0, 3], "margin": 0.01}
    found = confirmed(tmp_path, {"isotropy.n_components": "range(1, 5)"}, trials, **more)
    study = loaded(tmp_path, found)
    assert found.file == "confirm_few_1.yaml", "the first of equals"
    assert study.methods == {"baseline": (), "winner": ("isotropy.n_components=2",)}
    assert (study.baseline, study.margin) == ("baseline", 0.01)
    assert study.seeds == (1, 2, 4, 5, 6, 7, 8, 9)
    assert study.overrides == ("encoder=tiny", "source=demo", "isotropy=clip")
    assert study.tasks == {"rte": ("task=rte",)}
    assert question_of(found.yaml).startswith("does what search few chose by val/accuracy hold on")
    assert "trial 1, best of 3." in found.yaml


def test_options_to_compare_are_methods_of_equal_standing(tmp_path):
    space = {"objective": [[], ["simcse"], ["istar"]], "optimizer.lr": [0.1, 0.2]}
    values = [
        {"objective": o, "optimizer.lr": lr} for o in ("[]", "[simcse]") for lr in ("0.1", "0.2")
    ]
    values += [{"objective": "[istar]", "optimizer.lr": lr} for lr in ("0.1", "0.2")]
    ends = [0.1, 0.2, 0.4, 0.3, TrialState.FAIL, TrialState.PRUNED]
    found = confirmed(tmp_path, space, list(zip(values, ends, strict=True)))
    study = loaded(tmp_path, found)
    assert found.file == "confirm_few_1_2.yaml"
    assert study.methods == {
        "none": ("objective=[]", "optimizer.lr=0.2"),
        "simcse": ("objective=[simcse]", "optimizer.lr=0.1"),
    }
    assert (study.baseline, study.margin) == ("none", None)


@pytest.mark.parametrize(
    ("ends", "changed", "message"),
    [
        ([TrialState.FAIL], {}, "No trial is complete, so there is no best one."),
        ([0.9], {"n_trials": 2}, "The study that confirms it is written when all trials have "),
        ([0.9, TrialState.RUNNING], {}, "The study that confirms it is written when all trials "),
        ([0.6, 0.9], {"baseline": "2"}, NOTHING),
        ([0.6, 0.9], {"baseline": None}, NOTHING),
    ],
)
def test_where_there_is_no_study_a_sentence_says_why(tmp_path, ends, changed, message):
    trials = [({"data.batch_size": "8"}, end) for end in ends]
    assert confirmed(tmp_path, {"data.batch_size": [8, 32]}, trials, **changed).startswith(message)
