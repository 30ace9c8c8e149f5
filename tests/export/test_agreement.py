"""Whether what is exported is the run that was scored, and what is written is what was exported."""

import shutil

import pytest
import torch

from isotrain.cli import main
from isotrain.export import rebuilt
from isotrain.export.folders import RoundTripError, differences
from isotrain.runs.files import read_result, write_result
from isotrain.runs.predictions import Predictions, write_predictions

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


@pytest.mark.parametrize(("device", "off", "n"), [("cpu", 2e-3, 0), ("cuda:0", 0.05, 3)])
def test_examples_are_predicted_as_recorded(made_run, of_the_run, capsys, device, off, n):
    """All on a CPU in float32, nine in ten elsewhere."""
    run = made_run(*STSB_RUN)
    known = of_the_run(run)
    scores = known.output.logits[:, 0]
    scores[:n] += off
    record(run, known, scores, device=device)
    code, message = exported(run, capsys)
    assert code == 0
    assert f"{32 - n} of 32 examples are predicted as the run recorded them" in message
    assert f"{32 - n} of 32 examples" in (run / "export/transformers/README.md").read_text()
    scores[n] += off
    record(run, known, scores, device=device)
    code, message = exported(run, capsys)
    assert code == 2
    assert f"{31 - n} of 32 examples are predicted as the run recorded them; these" in message


def test_the_examples_that_a_run_scored_are_compared(made_run, of_the_run, capsys, monkeypatch):
    monkeypatch.setattr(rebuilt, "N_ROWS", 4)
    run = made_run(*STSB_RUN, "data.n_dev=4")
    known = of_the_run(run)
    chosen = torch.tensor([5, 11, 17, 30])
    found = Predictions(
        chosen.numpy(),
        known.batch.labels[chosen].numpy(),
        known.output.logits[chosen, 0].double().numpy(),
    )
    write_predictions(run, "dev", found)
    assert "4 of 4 examples are predicted as the run recorded them" in exported(run, capsys)[1]


def test_another_class_is_another_prediction(made_run, of_the_run, capsys):
    run = made_run("task=rte", "metric=[]")
    known = of_the_run(run)
    classes = known.output.logits.argmax(dim=1)
    record(run, known, classes)
    assert exported(run, capsys)[0] == 0
    classes[0] = 1 - classes[0]
    record(run, known, classes)
    assert exported(run, capsys)[0] == 2


def test_a_run_in_bfloat16_is_exported(made_run, of_the_run, capsys):
    run = made_run(*STSB_RUN, "trainer.precision=bf16-mixed")
    known = of_the_run(run)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        scores = known.model.float()(known.batch).logits[:, 0]
    assert (scores - known.output.logits[:, 0]).abs().max() > 1e-4, "not the same in float32"
    record(run, known, scores)
    code, message = exported(run, capsys)
    assert code == 0, message


def test_differences_are_judged_in_float32_and_in_float64():
    exact = torch.linspace(-1.0, 1.0, 20, dtype=torch.float64)[:, None]
    single = exact.float()
    differences((single, single + 9e-6), (exact, exact + 9e-7))
    with pytest.raises(RoundTripError, match="differs from the run"):
        differences((single, single), (exact, exact + 1.1e-6))
    with pytest.raises(RoundTripError, match=r"in float32, .* 2e-05 \(limit 1e-05\)"):
        differences((single, single + 2e-5), (exact, exact))
    rounded = single + 1e-5  # the run itself is as far off in float32
    assert "2e-05 (limit 0.0001)" in differences((rounded, rounded + 2e-5), (exact, exact))
