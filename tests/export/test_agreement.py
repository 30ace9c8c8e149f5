"""Whether what is exported is the run that was scored, and what is written is what was exported."""

import shutil

import numpy as np
import pytest
import torch

from isotrain.cli import main
from isotrain.export.folders import differences
from isotrain.export.rebuilt import same
from isotrain.export.source_run import RoundTripError
from isotrain.runs.files import read_result, write_result
from isotrain.runs.predictions import Predictions, write_predictions
from isotrain.tasks.rte import RTE
from isotrain.tasks.snli import SNLI
from isotrain.tasks.stsb import STSB

STSB_RUN = ("task=stsb", "task.form=bi", "pooling=mean", "isotropy=zca", "metric=[]")


def record(run, known, scores, **changes):
    """Keep predictions as a run does, and change its record."""
    labels = known.batch.labels.numpy()
    found = Predictions(known.batch.index.numpy(), labels, scores.double().numpy())
    result = {**read_result(run), **changes}
    write_predictions(run, "dev", found)
    write_result(run, result)


def exported(run, capsys):
    """The exit code, and what is reported on one line."""
    shutil.rmtree(run / "export", ignore_errors=True)
    code = main(["export", str(run), "--format", "transformers"])
    captured = capsys.readouterr()
    return code, " ".join((captured.out + captured.err).split())


def test_every_row_must_be_predicted_as_recorded(made_run, of_the_run, capsys):
    run = made_run(*STSB_RUN)
    known = of_the_run(run)
    scores = known.output.logits[:, 0]
    record(run, known, scores + 5e-5)
    code, message = exported(run, capsys)
    assert code == 0
    assert "all 32 examples are predicted as the run recorded them (logits to 0.0001 of" in message
    assert "all 32 examples" in (run / "export/transformers/README.md").read_text()
    scores[7] += 1e-3
    record(run, known, scores)
    code, message = exported(run, capsys)
    assert code == 2
    assert "31 of 32 examples are predicted as the run recorded them" in message
    record(run, known, scores, device="cuda:0")
    code, message = exported(run, capsys)
    assert code == 0
    assert "logits to 0.02 of the largest one; it computed on cuda:0" in message


def test_a_run_in_bfloat16_is_exported(made_run, of_the_run, loaded, capsys):
    run = made_run(*STSB_RUN, "trainer.precision=bf16-mixed")
    known = of_the_run(run)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        scores = known.model.float()(known.batch).logits[:, 0]
    off = (scores - known.output.logits[:, 0]).abs().max()
    assert off > 1e-4, "it is not the same in float32"
    record(run, known, scores)
    code, message = exported(run, capsys)
    assert code == 0, message
    assert "it computed on cpu, precision bf16-mixed" in message


def test_rows_of_classes_count_as_one_where_two_logits_are_as_good_as_equal():
    logits = torch.tensor([[2.0, 2.0001, 0.0], [2.0, 2.1, 0.0], [1.0, 0.0, 5.0]])
    for recorded, expected in (
        ([1, 1, 2], [True, True, True]),
        ([0, 0, 2], [True, False, True]),
        ([2, 2, 1], [False, False, False]),
    ):
        found = same(SNLI(), logits, torch.tensor(recorded), 1e-4, may_cross=True)
        assert found.tolist() == expected
    assert same(RTE(), logits[:0, :2], torch.zeros(0), 1e-4, may_cross=True).tolist() == []


def test_on_another_device_classes_count_as_they_are():
    logits = torch.tensor([[0.011, 0.0], [0.0, 0.015], [-0.01, 0.009]])
    found = same(RTE(), logits, torch.tensor([0, 0, 0]), 0.02, may_cross=False)
    assert found.tolist() == [True, False, False]


def test_scores_are_the_same_within_the_tolerance_of_their_scale():
    logits = torch.tensor([[0.5], [40.0]])
    recorded = torch.tensor([0.5039, 40.0041], dtype=torch.float64)
    assert same(STSB(), logits, recorded, 1e-4, may_cross=True).tolist() == [False, False]
    recorded = torch.tensor([0.50009, 40.0039], dtype=torch.float64)
    assert same(STSB(), logits, recorded, 1e-4, may_cross=False).tolist() == [True, True]
    assert not same(STSB(), logits, torch.full((2,), np.nan), 1e-4, may_cross=True).any()


def test_differences_are_judged_in_float32_and_in_float64():
    exact = torch.linspace(-1.0, 1.0, 20, dtype=torch.float64)[:, None]
    single = exact.float()
    assert differences((single, single + 9e-6), (exact, exact + 9e-7)).n_rows == 20
    with pytest.raises(RoundTripError, match="differs from the run"):
        differences((single, single), (exact, exact + 1.1e-6))
    with pytest.raises(RoundTripError, match=r"in float32, .* 2e-05 \(limit 1e-05\)"):
        differences((single, single + 2e-5), (exact, exact))
    rounded = single + 1e-5  # the run itself is as far off in float32
    assert differences((rounded, rounded + 2e-5), (exact, exact)).single_limit > 9e-5
