"""What is refused before any data are read, and processes that are at several stages."""

import pytest

from isotrain.training.data import TaskData


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("objective=[cosreg]", "objective.cosreg.reads=[layer_9/tokens]"), "layer_0 .* layer_2"),
        (("site=[layer_9]", "isotropy=zca"), "layer_1 to layer_2"),
    ],
)
def test_a_block_that_the_encoder_lacks_is_told_before_data_are_read(
    built, monkeypatch, overrides, told
):
    monkeypatch.setattr(TaskData, "setup", pytest.fail)
    with pytest.raises(ValueError, match=told):
        built("task=rte", "metric=[]", *overrides)


def test_nodes_count_as_processes(built):
    """Two nodes of one device each share a batch."""
    whole = built("task=rte", "metric=[]", "data.batch_size=2")
    shared = built("task=rte", "metric=[]", "data.batch_size=2", "+trainer.num_nodes=2")
    assert (whole.trainer.world_size, shared.trainer.world_size) == (1, 2)
    assert whole.data.n_batches(1) == shared.data.n_batches(2)
    with pytest.raises(ValueError, match=r"each of 2 .* an example, and data\.batch_size"):
        built("task=rte", "metric=[]", "data.batch_size=1", "+trainer.num_nodes=2")


def test_processes_at_several_stages_stop(monkeypatch):
    """One resumes from a checkpoint, which the other found damaged."""
    stages = [("hash", "fit"), ("hash", "validate")]
    monkeypatch.setattr("isotrain.training.data.of_all_processes", lambda own: stages)
    data = TaskData(None, None, None, 1, 1, "random", 0, name="hash")
    with pytest.raises(RuntimeError, match=r"one resume\.ckpt, and they are at hash fit, hash val"):
        data.setup("fit")
