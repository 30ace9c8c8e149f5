"""The contract of each kind of part, held against every file of its config group."""

import inspect
import json
from copy import deepcopy
from functools import partial

import pytest
import torch
from hydra.utils import get_object, instantiate

from isotrain.encoders.tiny import build_tiny
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.model.pooling import ClsPooling
from isotrain.objectives.base import Objective
from isotrain.objectives.visreg import VISReg
from isotrain.tasks.data.encoding import collate
from isotrain.tasks.data.sources import LocalSource
from isotrain.tasks.presets import preset_node
from tests.clouds import with_a_flat_tail
from tests.clouds import with_a_tail as cloud
from tests.parts import OF_FIXTURES, TASKS, names

WIDTH = 16


NODES = {}  # composing a configuration takes longer than most of these tests


def node_of(composed, group, name):
    """The node of a file, composed once."""
    if (group, name) not in NODES and group == "objective":  # one takes them all
        every = composed(f"objective=[{','.join(names(group))}]")[group]
        NODES.update({(group, one): every[one] for one in every})
    elif (group, name) not in NODES:
        NODES[group, name] = composed(f"{group}={name}")[group]
    return NODES[group, name]


# Isotropy layers


class Fed:
    """A layer that is given labels where it reads them: of every second row, the one class."""

    def __init__(self, layer):
        object.__setattr__(self, "layer", layer)

    def __getattr__(self, name):
        return getattr(self.layer, name)

    def __setattr__(self, name, value):
        setattr(self.layer, name, value)

    def _known(self, x):
        return [torch.arange(len(x)) % 2] * self.layer.reads_labels

    def __call__(self, x):
        return self.layer(x, *self._known(x) * self.layer.training)

    def observe(self, x):
        self.layer.observe(x, *self._known(x))

    def train(self, mode=True):
        self.layer.train(mode)
        return self

    def eval(self):
        return self.train(False)


@pytest.fixture
def layer(request, composed):
    made = Fed(instantiate(node_of(composed, "isotropy", request.param))(width=WIDTH))
    if behind_one_map(made):
        made.fit(cloud(512, seed=6))
    return made


def behind_one_map(layer):
    """It trains with what was frozen before."""
    return getattr(layer, "stats", None) == "start"


over_layers = pytest.mark.parametrize("layer", names("isotropy"), indirect=True)
SIZES = (1, 2, 8, 32, 512)


def fitted(layer):
    layer.train()
    layer.observe(cloud(64, seed=1))
    layer.fit()
    return layer


def state(layer):
    return deepcopy(layer.state_dict())


def assert_same_state(layer, before):
    after = layer.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


@over_layers
@pytest.mark.parametrize("when", ["new", "observed", "frozen"])
def test_shape_finite_values_and_no_change_of_state(layer, when):
    if when != "new":
        fitted(layer)
    layer.train(when != "frozen")
    before = state(layer)
    for n in SIZES:
        for x in (cloud(n), cloud(1).repeat(n, 1)):
            original = x.clone()
            y = layer(x)
            assert y.shape == (n, WIDTH)
            assert y.dtype == x.dtype
            assert bool(torch.isfinite(y).all()), n
            assert torch.equal(x, original)
            assert_same_state(layer, before)
            assert all(isinstance(v, torch.Tensor) and v.ndim == 0 for v in layer.counters.values())


@over_layers
def test_the_type_of_rows_comes_back(layer):
    fitted(layer)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for training in (True, False):
            y = layer.train(training)(cloud(32).to(dtype))
            assert y.dtype == dtype
            assert bool(torch.isfinite(y).all()), (dtype, training)


@over_layers
def test_the_gradient_is_finite(layer):
    fitted(layer)
    for training in (True, False):
        layer.train(training)
        for n in SIZES:
            x = cloud(n).requires_grad_()
            layer(x).square().sum().backward()
            assert bool(torch.isfinite(x.grad).all()), (training, n)


@over_layers
def test_a_row_does_not_depend_on_its_batch_mates_once_frozen(layer):
    if layer.eval_stats != "frozen":
        return  # the published variant depends on its batch-mates, and says so
    fitted(layer).eval()
    first, second = cloud(32, seed=2), cloud(32, seed=3)
    second[:5] = first[:5]
    assert torch.equal(layer(first)[:5], layer(second)[:5])
    # Another N: at most rounding.
    rms = first.square().mean().sqrt()
    assert float((layer(first)[:5] - layer(first[:5])).detach().abs().max() / rms) < 1e-5


@over_layers
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_that_is_not_finite_stays_out_of_statistics_and_queue(layer, bad):
    x = cloud(32)
    keep = torch.arange(32) < 31
    layer.stats = "batch"
    expected = layer.train()(x[keep])
    x[31, 1] = bad
    gap = (layer(x)[keep] - expected).detach().abs().max()  # 32 rows and 31 round differently
    assert float(gap / expected.detach().square().mean().sqrt()) < 1e-5
    layer.observe(x)
    if layer.recent_rows() is not None:
        assert len(layer.queue.rows()) == 31
        assert bool(torch.isfinite(layer.queue.rows()).all())


@over_layers
def test_bfloat16_autocast_changes_nothing(layer):
    x = cloud(32)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer.train()(x)
    assert torch.equal(found, layer(x))
    assert torch.equal(layer(x.bfloat16()), layer(x.bfloat16().float()).bfloat16())


@over_layers
def test_training_depends_on_batch_mates_unless_it_is_the_identity(layer):
    layer.train()
    first, second = cloud(32, seed=2), cloud(32, seed=3)
    second[:5] = first[:5]
    equal = torch.equal(layer(first)[:5], layer(second)[:5])
    assert equal == (not layer.has_statistics or behind_one_map(layer))


@over_layers
def test_the_state_goes_through_a_state_dict(layer, request, composed):
    name = request.node.callspec.params["layer"]
    fitted(layer).eval()
    copy = Fed(instantiate(node_of(composed, "isotropy", name))(width=WIDTH))
    copy.load_state_dict(layer.state_dict(), strict=True)
    x = cloud(32, seed=4)
    assert torch.equal(copy.eval()(x), layer(x))
    assert torch.equal(copy.train()(x), layer.train()(x))
    copy.observe(cloud(8, seed=5))
    layer.observe(cloud(8, seed=5))
    assert_same_state(copy, state(layer))


@over_layers
def test_shapes_of_the_state_never_change(layer):
    shapes = {name: value.shape for name, value in layer.state_dict().items()}
    fitted(layer)
    layer.observe(cloud(3000))
    layer.fit()
    assert {name: value.shape for name, value in layer.state_dict().items()} == shapes


@over_layers
def test_evaluation_before_fit_raises(layer):
    layer.eval()
    if behind_one_map(layer):
        layer.is_fitted.fill_(False)
        with pytest.raises(RuntimeError, match=r"fit\(x\)"):
            layer.train()(cloud(8))
        layer.eval()
    if layer.has_statistics:
        if layer.eval_stats == "frozen":
            with pytest.raises(RuntimeError, match="fit"):
                layer(cloud(8))
        if layer.recent_rows() is not None:
            with pytest.raises(RuntimeError, match="observe"):
                layer.fit()
    else:
        assert torch.equal(layer(cloud(8)), cloud(8))


@pytest.mark.parametrize("stats", ["queue", "batch"])
@pytest.mark.parametrize("name", names("isotropy"))
def test_a_step_later_an_embedding_is_where_it_was(name, stats, composed):
    """An encoder that does not train; a head cannot learn from coordinates that jump."""
    made = Fed(instantiate(node_of(composed, "isotropy", name))(width=128))
    if not behind_one_map(made) and hasattr(made, "stats"):
        made.stats = stats
    check_step(made)


def test_a_step_later_the_leading_whitened_coordinates_are_where_they_were(composed):
    node = node_of(composed, "isotropy", "whitening")
    check_step(instantiate(node)(width=128, n_components=6))  # as many as are strong


def check_step(made):
    """The output of one probe before and after one more step."""
    x, probe = with_a_flat_tail(1400, 128), with_a_flat_tail(256, 128, seed=1)
    if behind_one_map(made):
        made.fit(x[:1024])
    for start in range(0, 1280, 128):
        made.train().observe(x[start : start + 128])
    outputs = []
    for start in (1280, 1312):
        made.train().observe(x[start : start + 32])
        made.fit()
        outputs.append((made(probe).detach(), made.eval()(probe).detach()))
    for before, after in zip(*outputs, strict=True):
        assert float(torch.cosine_similarity(before, after).mean()) >= 0.9


# Objectives


@pytest.fixture
def objective(request, composed):
    node = node_of(composed, "objective", request.param)
    takes = inspect.signature(get_object(node["_target_"])).parameters
    known = {"width": WIDTH, "n_blocks": 1}
    return instantiate(node, **{name: known[name] for name in known if name in takes})


def vectors_of(objective, n, n_views=None, seed=0):
    """Views of n examples, a cloud for each place that is read, with as many vectors as needed."""
    p = 2 if objective.needs.endswith("pairs") else 1
    return [
        [
            cloud(n * p, seed=seed + 10 * view + number).reshape(n, p, WIDTH).requires_grad_()
            for number in range(len(objective.reads))
        ]
        for view in range((n_views or objective.n_views) + objective.reads_start)
    ]


def labels_of(objective, n):
    return torch.arange(n) % 2 if objective.needs == "classes" else torch.arange(n) % 5 / 5


over_objectives = pytest.mark.parametrize("objective", names("objective"), indirect=True)


@over_objectives
def test_an_objective_is_a_finite_scalar_with_a_finite_gradient(objective):
    assert objective.weight != 0
    assert objective.n_views in (1, 2)
    assert objective.needs in ("rows", "classes", "pairs", "scored_pairs")
    for n in (1, 2, 3, 8):
        for kind in ("distinct", "equal", "zero"):
            assert_finite_loss_and_gradient(objective, n, kind)


def assert_finite_loss_and_gradient(objective, n, kind):
    views = vectors_of(objective, n)
    leaves = [leaf for clouds in views for leaf in clouds]
    with torch.no_grad():
        for leaf in leaves:
            leaf.copy_(leaf if kind == "distinct" else leaf[:1] * (kind == "equal"))
    loss = objective(views, labels_of(objective, n))
    assert loss.shape == ()
    assert bool(torch.isfinite(loss)), (n, kind)
    loss.backward()  # a loss that is not defined is a zero with a graph
    for leaf in leaves:
        assert leaf.grad is None or bool(torch.isfinite(leaf.grad).all()), (n, kind)
    if kind == "distinct" and n == 8:
        assert any(bool(leaf.grad.abs().max() > 0) for leaf in leaves)
    for name, value in objective.counters.items():
        assert isinstance(name, str)
        assert value.shape == ()
        assert not value.requires_grad


@over_objectives
def test_an_objective_has_the_gradient_that_differences_have(objective):
    objective.double()
    if isinstance(objective, VISReg):
        objective.loss = partial(
            objective.loss, shape_weight=0.0
        )  # σ has no gradient there, on purpose
    views = [
        [leaf.detach().double().requires_grad_() for leaf in clouds]
        for clouds in vectors_of(objective, 5)
    ]
    flat = [leaf for clouds in views for leaf in clouds]
    labels = labels_of(objective, 5)

    def loss(*leaves):
        rest = iter(leaves)
        return objective([[next(rest) for _ in clouds] for clouds in views], labels)

    assert torch.autograd.gradcheck(loss, flat)


@over_objectives
def test_an_objective_remembers_only_when_reported_and_its_state_returns(objective):
    views, labels = vectors_of(objective, 8), labels_of(objective, 8)
    before = [float(objective(views, labels).detach()) for _ in range(2)]
    assert before[0] == before[1]
    if type(objective).observe is Objective.observe:
        assert not objective.remembers
        assert not objective.state_dict()
        return
    held = [[leaf.detach() for leaf in clouds] for clouds in vectors_of(objective, 8, seed=5)]
    twin = deepcopy(objective)
    objective.observe(held, labels)
    after = float(objective(views, labels).detach())
    twin.load_state_dict(objective.state_dict())
    assert float(twin(views, labels).detach()) == after


# Tasks


def forms(name):
    """The forms that a task's file offers; None for one that has no such key."""
    return ("cross", "bi") if "form" in preset_node(name) else (None,)


@pytest.fixture
def task(request, composed):
    name, form = request.param
    chosen = [f"task.form={form}"] if form else []
    return instantiate(composed(f"task={name}", *chosen).task)


over_tasks = pytest.mark.parametrize(
    "task", [(name, form) for name in OF_FIXTURES for form in forms(name)], indirect=True
)


@over_tasks
def test_a_task_loads_encodes_and_scores(task, data_dir, tokenizer):
    rows = task.load(LocalSource(str(data_dir)))
    gold = [
        json.loads(line).get("label", 0) >= 0
        for line in (data_dir / task.data_set.name / "test.jsonl").read_text().splitlines()
    ]
    assert sum(gold) == (0 if task.name == "rte" else 32)
    assert task.left_out.get("test: no gold", 0) == 32 - sum(gold)
    assert list(rows) == ["train", "dev", "test"]
    assert (len(rows["dev"]), len(rows["test"])) == (32, sum(gold))
    assert len(rows["train"]) == 96 if task.has_loss else len(rows["train"]) >= 32
    examples = {split: task.encode(found, tokenizer) for split, found in rows.items()}
    for split, n_sequences in (
        ("train", task.n_sequences),
        ("dev", {"cross": 1, "bi": 2}[task.form]),
    ):
        assert [e.index for e in examples[split]] == list(range(len(rows[split])))
        for e in examples[split]:
            lists = e.input_ids, e.token_type_ids, e.special_mask
            assert [len(sequences) for sequences in lists] == [n_sequences] * 3
            assert (e.spans is None) == (task.n_spans == 0)
            if e.spans is not None:
                assert [len(spans) for spans in e.spans] == [task.n_spans] * n_sequences

    torch.manual_seed(0)
    encoder = build_tiny(width=WIDTH, n_blocks=1, n_heads=1)
    n_vectors = ClsPooling().n_vectors(task.n_sequences, task.n_spans)
    head = task.build_head(WIDTH, n_vectors)
    model = IsotropicModel(encoder, ClsPooling(), head, {})
    of_train = model(collate(examples["train"], tokenizer.pad_token_id))
    assert of_train.pooled.shape == (len(rows["train"]), n_vectors, WIDTH)
    assert len(of_train.logits) == len(rows["train"])
    batch = collate(examples["dev"], tokenizer.pad_token_id)
    output = model(batch)
    loss = task.loss(output.logits, batch.labels)
    assert loss.shape == ()
    loss.backward()
    assert encoder.embeddings.word_embeddings.weight.grad.abs().max() > 0
    predictions = task.predictions(output.logits)
    assert predictions.shape == (32,)
    score = task.metrics()
    score.update(predictions.detach(), batch.labels)
    found = score.compute()
    assert -1.0 <= float(found[task.monitor]) <= 1.0
    perfect = task.metrics()
    perfect.update(batch.labels, batch.labels)
    assert float(perfect.compute()[task.monitor]) == pytest.approx(1.0)


@pytest.mark.parametrize("name", [name for name in TASKS if forms(name) != (None,)])
def test_a_task_rejects_another_form(composed, name):
    with pytest.raises(Exception, match="form must be cross or bi, got 'tri'"):
        instantiate(composed(f"task={name}", "task.form=tri").task)
