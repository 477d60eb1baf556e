"""cuDNN's recurrent layers as TensorFlow runs them (cudnn_rnn_ops.cc): workspace, reserve space, and copies for bfloat16.

The sizes of an LSTM are those of `legroom.engines.xla.cudnn_rnn`, to the byte. Those of a GRU have the same pieces: three gates
in place of four, and six numbers a step in reserve in place of five. cuDNN has no bfloat16 here, so TensorFlow copies to float32.
"""

from dataclasses import dataclass

from legroom.engines.op.ops import Op
from legroom.engines.xla.cudnn_rnn import rnn_sizes
from legroom.gpus import Gpu

PIECE_BYTES = 32
OVERHEAD_BYTES = 256
CARD_BYTES = 2**23  # for each direction


@dataclass(frozen=True, slots=True)
class Layer:
    """The numbers that the sizes depend on."""

    mode: str
    batch: int
    length: int
    inputs: int
    hidden: int
    directions: int
    layers: int
    element_bytes: int


def read(op: Op) -> Layer:
    x, state = op.inputs[0].shape, op.inputs[1].shape
    major = bool(op.attributes.get("time_major", True))
    length, batch = x[:2] if major else (x[1], x[0])
    stack = state[0] if major else state[1]  # layers × directions
    directions = 2 if op.attributes.get("direction") == "bidirectional" else 1
    return Layer(
        mode=str(op.attributes.get("rnn_mode", "lstm")),
        batch=batch,
        length=length,
        inputs=x[2],
        hidden=state[-1],
        directions=directions,
        layers=max(stack // directions, 1),
        element_bytes=2 if op.inputs[0].dtype == "float16" else 4,
    )


def recurrent(op: Op, gpu: Gpu) -> tuple[int, ...]:
    """The lengths of the sequences, the workspace, and in bfloat16 everything in float32."""
    layer = read(op)
    workspace = sizes(layer)[0]
    lengths = (4 * layer.batch,) if op.kind.endswith("V3") else ()
    if op.inputs[0].dtype != "bfloat16":
        return *lengths, workspace
    backward = "Backprop" in op.kind
    given = op.inputs[:11] if backward else op.inputs[:4]  # without reserve space, which is float32 already
    made = op.outputs[:4] if backward else op.outputs[:3]
    copies = [2 * array.size_bytes for array in (*given, *made) if array.dtype == "bfloat16"]
    return *copies, *[reserve_bytes(op)] * backward, *lengths, workspace


def reserve_bytes(op: Op) -> int:
    """What the layer keeps between the passes; nothing without training."""
    return sizes(read(op))[1] if op.attributes.get("is_training", True) else 0


def sizes(layer: Layer) -> tuple[int, int]:
    """(workspace_bytes, reserve_bytes) of a stack of layers; layers above the first read what the one below wrote."""
    found = [
        one_layer(layer, layer.inputs if number == 0 else layer.hidden * layer.directions)
        for number in range(layer.layers)
    ]
    workspace, reserve = max(pair[0] for pair in found), sum(pair[1] for pair in found)
    scale = layer.element_bytes
    return workspace * scale // 4, reserve * scale // 4


def one_layer(layer: Layer, inputs: int) -> tuple[int, int]:
    if layer.mode == "lstm":
        bidirectional = layer.directions > 1
        return rnn_sizes(inputs, layer.hidden, 1, layer.batch, layer.length, 0.0, bidirectional, False)
    gates, kept = (3, 6) if layer.mode == "gru" else (1, 2)
    state = padded(4 * layer.batch * layer.hidden)
    image = padded(4 * layer.batch * layer.length * inputs)
    result = padded(4 * layer.batch * layer.length * layer.hidden)
    weights = 4 * gates * layer.hidden * (inputs + layer.hidden)
    steps = 5 * state + 3 * result + 2 * image + max(image, result)
    workspace = layer.directions * (CARD_BYTES + weights + steps) + padded(8 * layer.batch) + OVERHEAD_BYTES
    return workspace, layer.directions * kept * result + OVERHEAD_BYTES


def padded(size_bytes: int) -> int:
    return -(-size_bytes // PIECE_BYTES) * PIECE_BYTES
