"""cuDNN's LSTM without a GPU: the sizes against those that an H200 gave, and what opening the door does and undoes."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from legroom.engines.xla.cudnn_rnn import gpu_rnn_lowering, rnn_sizes
from legroom.errors import EngineError, MissingError

MEASURED = Path(__file__).parents[2] / "bench" / "data" / "h200_rnn_sizes.jsonl"

# Run in a process of its own: Keras takes its backend at import, and other tests want TensorFlow's.
OBSERVE = """
import importlib, json
import jax, jax.numpy as jnp, keras
from jax._src.interpreters import mlir
from jax.experimental import rnn
from legroom.engines.xla.cudnn_rnn import gpu_rnn_lowering

keras_rnn = importlib.import_module("keras.src.backend.jax.rnn")
MISSING = "missing"

def state():
    lowerings = mlir._platform_specific_lowerings["cuda"]
    return [
        getattr(rnn.gpu_rnn, "compute_rnn_workspace_reserve_space_sizes", MISSING),
        keras_rnn._is_gpu_available,
        lowerings.get(rnn.rnn_fwd_p, MISSING),
        lowerings.get(rnn.rnn_bwd_p, MISSING),
    ]

def same(before):
    return all(one is other for one, other in zip(before, state(), strict=True))

def lowered(model):
    def loss(weights, x):
        others = [v.value for v in model.non_trainable_variables]
        return jnp.sum(model.stateless_call(weights, others, x, training=True)[0])
    weights = [jax.ShapeDtypeStruct(v.shape, "float32") for v in model.trainable_variables]
    x = jax.ShapeDtypeStruct((4, *model.input_shape[1:]), "float32")
    # The same function object each time: JAX's caches have every chance to answer for it.
    step = STEPS.setdefault(id(model), jax.jit(jax.value_and_grad(loss)))
    return step.trace(weights, x).lower(lowering_platforms=("cuda",)).as_text()

STEPS = {}
L = keras.layers
one_way = keras.Sequential([keras.Input((10, 16)), L.LSTM(8), L.Dense(1)])
both_ways = keras.Sequential([keras.Input((10, 16)), L.Bidirectional(L.LSTM(8)), L.Dense(1)])
seen, before = {}, state()
for name, model in (("one_way", one_way), ("both_ways", both_ways)):
    seen[name] = {"before": lowered(model)}
    with gpu_rnn_lowering():
        seen[name]["inside"] = lowered(model)
    seen[name]["after"] = lowered(model)
    seen[name]["restored"] = same(before)
try:
    with gpu_rnn_lowering():
        raise KeyError("from inside")
except KeyError:
    seen["restored_after_error"] = same(before)
with gpu_rnn_lowering():
    # Built, not only called, inside: Keras traces a new layer with a made-up batch and length.
    keras.Sequential([keras.Input((None, 16)), L.LSTM(8)])
    inner = state()
    with gpu_rnn_lowering():
        pass
    seen["restored_to_outer"] = same(inner)
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def observed() -> dict[str, Any]:
    if any(importlib.util.find_spec(name) is None for name in ("jax", "keras")):
        pytest.skip("needs JAX and Keras")
    done = subprocess.run(
        [sys.executable, "-c", OBSERVE],
        env={**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def test_every_measured_size_is_met_to_the_byte() -> None:
    rows = [json.loads(line) for line in MEASURED.read_text().splitlines()]
    wrong = []
    for row in rows:
        shape = row["input"], row["hidden"], 1, row["batch"], row["length"], 0.0, row["bidirectional"], row["tf32"]
        if rnn_sizes(*shape) != (row["workspace_bytes"], row["reserve_bytes"]):
            wrong.append(row)
    assert len(rows) == 2400
    assert wrong == []


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("position", [0, 1, 3, 4], ids=["input", "hidden", "batch", "length"])
def test_a_larger_layer_never_needs_less(position: int, bidirectional: bool) -> None:
    shape = [90, 100, 1, 33, 10]
    sizes = []
    for size in range(1, 260):
        shape[position] = size
        sizes.append(rnn_sizes(*shape, 0.0, bidirectional, True))
    for column in zip(*sizes, strict=True):
        assert list(column) == sorted(column)


@pytest.mark.parametrize(("num_layers", "dropout"), [(2, 0.0), (1, 0.5)])
def test_what_was_not_measured_is_refused(num_layers: int, dropout: float) -> None:
    with pytest.raises(EngineError, match=f"num_layers={num_layers}, dropout={dropout}"):
        rnn_sizes(16, 8, num_layers, 4, 10, dropout, False, True)


@pytest.mark.jax
@pytest.mark.parametrize("model", ["one_way", "both_ways"])
def test_an_lstm_is_cudnns_inside_and_only_there(observed: dict[str, Any], model: str) -> None:
    texts = observed[model]
    assert "@cudnn_rnn_ffi" in texts["inside"]
    assert "@cudnn_rnn_bwd_ffi" in texts["inside"]
    assert "cudnn_rnn" not in texts["before"]
    assert texts["after"] == texts["before"]


@pytest.mark.jax
def test_scratch_memory_is_declared_as_jax_declares_it(observed: dict[str, Any]) -> None:
    workspace_bytes, reserve_bytes = rnn_sizes(16, 8, 1, 4, 10, 0.0, False, True)
    assert f"tensor<{workspace_bytes}xf32>" in observed["one_way"]["inside"]
    assert f"tensor<{reserve_bytes}xf32>" in observed["one_way"]["inside"]


@pytest.mark.jax
def test_everything_is_put_back(observed: dict[str, Any]) -> None:
    assert observed["one_way"]["restored"]
    assert observed["both_ways"]["restored"]
    assert observed["restored_after_error"]
    assert observed["restored_to_outer"]


@pytest.fixture
def frameworks(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Stand-ins for the modules that the door is made of, in the state of an installation without a CUDA plugin."""
    lowerings: dict[str, dict[str, Any]] = {"cuda": {"fwd": "old rule"}}

    def register_lowering(primitive: str, rule: Any, platform: str) -> None:
        lowerings[platform][primitive] = rule

    library = SimpleNamespace(_rnn_fwd_lowering=print, _rnn_bwd_lowering=print)
    modules = SimpleNamespace(
        jax=SimpleNamespace(__version__="9.8.7", clear_caches=lambda: None),
        rnn=SimpleNamespace(__name__="jax.experimental.rnn", rnn_fwd_p="fwd", rnn_bwd_p="bwd", gpu_rnn=library),
        mlir=SimpleNamespace(_platform_specific_lowerings=lowerings, register_lowering=register_lowering),
        keras=SimpleNamespace(__version__="3.15.1", config=SimpleNamespace(backend=lambda: "jax")),
        keras_rnn=SimpleNamespace(__name__="keras.src.backend.jax.rnn", _is_gpu_available=lambda: False),
    )
    names = {
        "jax": modules.jax,
        "jax.experimental.rnn": modules.rnn,
        "jax._src.interpreters.mlir": modules.mlir,
        "keras": modules.keras,
        "keras.src.backend.jax.rnn": modules.keras_rnn,
    }
    for name, module in names.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules


def test_what_was_not_there_is_taken_away_again(frameworks: SimpleNamespace) -> None:
    with gpu_rnn_lowering():
        assert frameworks.keras_rnn._is_gpu_available()
        assert frameworks.rnn.gpu_rnn.compute_rnn_workspace_reserve_space_sizes is rnn_sizes
        assert set(frameworks.mlir._platform_specific_lowerings["cuda"]) == {"fwd", "bwd"}
    assert not frameworks.keras_rnn._is_gpu_available()
    assert not hasattr(frameworks.rnn.gpu_rnn, "compute_rnn_workspace_reserve_space_sizes")
    assert frameworks.mlir._platform_specific_lowerings == {"cuda": {"fwd": "old rule"}}


def test_an_older_keras_is_left_alone(frameworks: SimpleNamespace) -> None:
    frameworks.keras.__version__ = "3.9.0"
    del frameworks.keras_rnn._is_gpu_available
    with gpu_rnn_lowering():
        assert not hasattr(frameworks.keras_rnn, "_is_gpu_available")
    assert not hasattr(frameworks.keras_rnn, "_is_gpu_available")


@pytest.mark.parametrize(
    ("module", "name", "said"),
    [
        ("rnn", "gpu_rnn", "JAX 9.8.7 has no jax.experimental.rnn.gpu_rnn"),
        ("rnn", "rnn_bwd_p", "JAX 9.8.7 has no jax.experimental.rnn.rnn_bwd_p"),
        ("mlir", "_platform_specific_lowerings", "JAX 9.8.7 has no"),
        ("keras_rnn", "_is_gpu_available", "Keras 3.15.1 has no keras.src.backend.jax.rnn._is_gpu_available"),
    ],
)
def test_a_private_name_that_is_gone_is_named(frameworks: SimpleNamespace, module: str, name: str, said: str) -> None:
    delattr(getattr(frameworks, module), name)
    with pytest.raises(MissingError, match=said) as caught, gpu_rnn_lowering():
        pass
    assert "JAX 0.10.2 and Keras 3.15.1" in str(caught.value)
