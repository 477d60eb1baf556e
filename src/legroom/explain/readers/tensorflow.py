"""TensorFlow's exceptions: eager, in a graph, from XLA, from tf.data; the node, the kind of operation, the Keras layer."""

import re
from collections.abc import Iterator
from typing import Any

from legroom.explain.sizes import dtype_of, shape_of

STRONG = (
    *(
        b"OM when allocating",
        b"failed to allocate memory",
        b"ResourceExhaustedError",
        b"Dst tensor is not initialized",
    ),
    *(
        b"allocate memory for the batch",
        b"unable to allocate output tensor",
        b"Resource exhausted",
        b"when OOM happens",
        b"RESOURCE_EXHAUSTED",
        b"error allocating",
    ),
)
WEAK = (
    *(b"{{node ", b"[[Node: ", b"[[node ", b"[Op:", b"Detected at node", b"Node: '", b"__wrapped__"),
    *(
        b"when calling layer",
        b"received by layer",
        b".call()",
        b"Iterator::",
        b"user-defined function passed to",
        b"caused by op",
    ),
    *(b"Caused by op", b"Original stack trace for", b".Tensor(shape=", b"ShapedArray("),
)
ASKED = re.compile(r"OM when allocating (?:\w{1,20} )?tensor (?:with|of) shape ?\[([\d, ]{0,200})\]")
DIMENSION = re.compile(r"dim \{ size: (\d{1,15}) \}")  # until TensorFlow 0.6
TYPE = re.compile(r"\] and type (\w{1,20})")
PLACE = re.compile(r" on (?:/job:[\w:/.-]{1,120}/)?(?:device:)?/?(\w{2,20}:\d{1,4})")
ALLOCATOR = re.compile(r" by allocator ([\w.:/-]{1,80})")
NODE = re.compile(
    r"\{\{node ([^\s}]{1,400})\}\}|\[\[[nN]ode:? ([^\s=\]]{1,400})|(?:Node: |[Dd]etected at node )'?([^\s']{1,400})|(?:Caused by op|stack trace for) u?'([^\s']{1,400})'"
)
KIND = re.compile(r"\[Op:(\w{1,100})\]|__wrapped__(\w{1,60}?)_device_")
ATTRIBUTES = re.compile(r"= (?!_)\w{1,60}\[.{0,1600}")  # not of an edge between devices
NODE_TYPE = re.compile(r"\b(?:T|dtype)=DT_(\w{2,12})")
NODE_DEVICE = re.compile(r"\b_device=\\?\"[^\"]{0,80}/(?:device:)?([gGcC][pP][uU]:\d{1,3})\\?\"")
NAMED = re.compile(r"\[Op:\w{1,100}\] name: ([^\s\]]{2,400})")
LAYER = re.compile(r"when calling layer ['\"]([^'\"]{1,120})['\"]|layer ['\"]([^'\"]{1,120})['\"] \(type (\w{1,60})\)")
CALLED = re.compile(r"(?:when calling|received by) (\w{1,60})\.call\(\)")  # as Keras 3 has it: the layer's class
WHOLE_MODELS = ("Functional", "Sequential", "Model")
ARGUMENT = re.compile(  # as Keras lists what a layer was given
    r"=(?:torch|tf)\.Tensor\(shape=(?:torch\.Size\(\[|\()([\d, ]{1,100})[\])]{1,2}, dtype=(\w{4,12})\)|=\S{0,40}ShapedArray\((\w{4,12})\[([\d,]{1,100})\]"
)
ITERATOR = re.compile(r"Iterator::(?:Root::)?([\w:\[\]]{1,200})|user-defined function passed to (\w{1,60})")
COPIED = re.compile(r"in order to run (\w{1,60}): Dst tensor")
COPIED_TO = re.compile(  # by name, or as the third part of a rendezvous' key
    r"\bto (?:/job:[\w:/.-]{1,120}/)?(?:device:)?/?([A-Z]{3}:\d{1,4}) in order to run"
    r"|Key: [^;\s]{1,160};\w{1,20};/job:[\w:/.-]{1,120}/(?:device:)?([a-zA-Z]{3}:\d{1,4});"
)
CONSTANT = re.compile(r"value=Tensor<type: (\w{1,20}) shape: \[([\d,]{1,200})\]")
PIPELINE_KERNEL = re.compile(
    r"OP_REQUIRES failed at (image_resizer|decode_|resize_|crop_|example_pars|parse_|\w{0,30}dataset|batch_util|random_crop|reader_)"
)
STATE_KERNEL = re.compile(
    r"OP_REQUIRES failed at ((?:assign_op|training_ops|(?:resource_)?variable_ops|save_restore)\w{0,20}\.\w{1,4})"
)
MENTIONS = (
    "Resource exhausted",
    "RESOURCE_EXHAUSTED",
    "when OOM happens",
)  # the last in a hint that only such an error has
DATA_OPS = ("IteratorGetNext", "GeneratorDataset", "PyFunc", "EagerPyFunc")


def read(text: str) -> Iterator[tuple[str, Any]]:
    yield from failure(text)
    for node in NODE.finditer(text):
        name = next(group for group in node.groups() if group)
        if name and not name.startswith(("defined", "from")):
            yield "node", name.rstrip(":,")
    if (constant := CONSTANT.search(text)) and (sizes := shape_of(constant[2])) is not None:
        yield "dtype", dtype_of(constant[1])
        yield "shape", sizes
    if kind := KIND.search(text):
        name = kind[1] or kind[2]
        if not name.startswith("__inference"):
            yield "kind", name
        if name in DATA_OPS:
            yield "dataset", name
    if printed := ATTRIBUTES.search(text):
        yield from attributes(printed[0])
    if named := NAMED.search(text):
        yield "named", named[1]
    yield from keras(text)
    if "CPU" in text and (kernel := PIPELINE_KERNEL.search(text)):
        yield "dataset", kernel[1]
    if state := STATE_KERNEL.search(text):
        yield "state_kernel", state[1]
    if iterator := ITERATOR.search(text):
        yield "dataset", iterator[1] or iterator[2]


def keras(text: str) -> Iterator[tuple[str, Any]]:
    """The layer that Keras was calling, and what it had been given."""
    if layer := LAYER.search(text):
        yield "layer", layer[1] or layer[2]
    if (called := CALLED.search(text)) and called[1] not in WHOLE_MODELS:
        yield "called", called[1]
    if argument := ARGUMENT.search(text):
        yield "argument", (shape_of(argument[1] or argument[4]), argument[2] or argument[3])


def attributes(node: str) -> Iterator[tuple[str, Any]]:
    """TensorFlow 1 prints a node with the type it works on and the device it is on."""
    if type_ := NODE_TYPE.search(node):
        yield "node_dtype", dtype_of(type_[1].lower())
    if device := NODE_DEVICE.search(node):
        yield "device_hint", device[1].upper()


def failure(text: str) -> Iterator[tuple[str, Any]]:
    if asked := ASKED.search(text):
        yield "oom", "tensor"
        yield from tensor(text, asked)
    elif "OM when allocating" in text:
        yield "oom", "tensor"
        if dims := DIMENSION.findall(text):
            yield "shape", tuple(int(dim) for dim in dims[:16])
    elif "Dst tensor is not initialized" in text or "unable to allocate output tensor" in text:
        yield "oom", "copy"
        if copied := COPIED.search(text):
            yield "kind", copied[1]
        if device := COPIED_TO.search(text):
            yield "device", (device[1] or device[2]).upper()
    elif "allocate memory for the batch" in text:
        yield "oom", "dataset"
        yield "dataset", "batch"
    elif "failed to allocate memory" in text and "malloc" not in text:
        yield "oom", "tensor"
    elif "ResourceExhaustedError" in text or any(words in text for words in MENTIONS):
        yield "mentioned", None
    if "ResourceExhaustedError" in text or "InternalError" in text:
        yield "raised", None


def tensor(text: str, asked: re.Match[str]) -> Iterator[tuple[str, Any]]:
    """A tensor's shape, its type, where it should have been, and whose memory that is."""
    shape = shape_of(asked[1])
    if shape is not None:
        yield "shape", shape
    rest = text[asked.end() - 1 :]
    if type_ := TYPE.match(rest):
        yield "dtype", dtype_of(type_[1])
    if place := PLACE.search(rest):
        yield "device", place[1].upper()
    if allocator := ALLOCATOR.search(rest):
        yield "allocator", allocator[1].rstrip(".:")
