"""Every isotropy layer under torch.compile: the same values, gradients and counters.

Statistics depend on the data, so a layer breaks into several graphs: that is allowed, other values
and compiling for ever are not. N rows, D dimensions.
"""

import shutil

import pytest
import torch
from hydra.utils import instantiate
from torch._dynamo.testing import CompileCounterWithBackend

from tests.clouds import with_a_tail as cloud
from tests.parts import CONF, names

LAYERS = names("isotropy")
# Other numbers for a layer of the list: its backward is traced under that name.
NUMBERS = [n for n in LAYERS if "\ndefaults:" in (CONF / "isotropy" / f"{n}.yaml").read_text()]
NUMBERS = {*NUMBERS} - {"protect_labels", "shrink_clip", "gmm_pca"}  # these take other ways
WIDTH = 16

# Dynamo looks at .grad of the tensors that flow from one graph to the next.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def built_layer(composed):
    def build(name, **options):
        return instantiate(composed(f"isotropy={name}").isotropy)(width=WIDTH, **options)

    return build


def known_labels(layer, x):
    return [torch.arange(len(x)) % 2] * layer.reads_labels


def results(layer, call, x):
    """Rows, gradients of rows and parameters, and counters of one forward and backward."""
    layer.zero_grad()
    rows = x.clone().requires_grad_()
    y = call(rows, *known_labels(layer, x) * layer.training)
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(9))
    (y * weight).sum().backward()
    gradients = [p.grad.clone() for p in (rows, *layer.parameters())]
    return {"rows": y.detach(), **dict(enumerate(gradients)), **layer.counters}


def assert_same(layer, compiled, x, tolerance):
    expected, found = results(layer, layer, x), results(layer, compiled, x)
    assert list(found) == list(expected)
    for name, value in expected.items():
        largest = value.abs().max().item() or 1.0
        assert (found[name] - value).abs().max().item() <= tolerance * largest, name


def train(layer, compiled, sizes, tolerance, seed=0):
    """A forward, a backward and an observed batch of each size."""
    layer.train()
    for step, n in enumerate(sizes):
        x = cloud(n, seed + step)
        assert_same(layer, compiled, x, tolerance)
        layer.observe(x, *known_labels(layer, x))


def evaluate(layer, compiled, tolerance):
    if layer.has_statistics:
        x = cloud(64, seed=5)
        layer.fit(x, *known_labels(layer, x))
    layer.eval()
    assert_same(layer, compiled, cloud(32, seed=6), tolerance)


def compiled_layer(layer, backend="eager"):
    counter = CompileCounterWithBackend(backend)
    return torch.compile(layer, backend=counter), counter


@pytest.mark.parametrize("name", ["none", "cluster_pca", "whitening", "batch_norm"])
def test_frozen_evaluation(built_layer, name):
    layer = built_layer(name)
    compiled, counter = compiled_layer(layer)
    evaluate(layer, compiled, 1e-6)
    assert (counter.frame_count > 0) == layer.has_statistics  # the identity is no graph


def test_a_training_step(built_layer):
    layer = built_layer("batch_norm")
    train(layer, compiled_layer(layer)[0], [32], 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_in_training_and_evaluation(built_layer, name):
    layer = built_layer(name)
    if getattr(layer, "stats", None) == "start":
        layer.fit(cloud(64, seed=8))
    compiled, _ = compiled_layer(layer, "eager" if name in NUMBERS else "aot_eager")
    train(layer, compiled, [32, 24], 1e-5)
    evaluate(layer, compiled, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "allowed"), [("zca", 0), ("cluster_pca", 2)])
def test_compiling_comes_to_an_end(built_layer, name, allowed):
    """Graphs are compiled in the first steps; new batch sizes and a longer queue need no more."""
    layer = built_layer(name)
    compiled, counter = compiled_layer(layer)
    train(layer, compiled, [32, 32, 24, 28, 32, 30, 26, 32], 1e-6)
    warm = counter.frame_count
    train(layer, compiled, [32, 23, 29, 31, 27, 32, 25, 22], 1e-6, seed=20)
    assert counter.frame_count - warm <= allowed


@pytest.mark.campaign
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:.*torch.jit.*deprecated:DeprecationWarning")  # in its imports
@pytest.mark.parametrize(("name", "training"), [("batch_norm", True), ("cluster_pca", False)])
def test_the_real_compiler(built_layer, monkeypatch, tmp_path, name, training):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    layer = built_layer(name)
    layer.fit(cloud(64, seed=5))
    with torch._inductor.config.patch(compile_threads=1):
        compiled = torch.compile(layer.train(training))
        for seed in (6, 7):
            assert_same(layer, compiled, cloud(32, seed=seed), 1e-5)
    assert any(tmp_path.rglob("*.so"))  # something was compiled
