"""TensorFlow's own graph optimiser, run for a device that is not there.

The device is described to Grappler as a virtual cluster, so that what depends on it (the layout of convolutions, fused
kernels) comes out as it would there. Private names used, tested with TensorFlow 2.21.0: `tensorflow.python.grappler`,
`tensorflow.python.training.saver.export_meta_graph`, `FuncGraph.control_outputs`.
"""

from dataclasses import dataclass
from typing import Any

from legroom.engines.op.gpu_placeholders import register
from legroom.errors import MissingError

HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
CPU_MEMORY_BYTES = 2**28  # what TensorFlow says of every CPU: above 80% of it, sums of three and more are rewritten
CARD = "/job:localhost/replica:0/task:0/device:GPU:0"


@dataclass(frozen=True, slots=True)
class Device:
    """Where the step will run: a GPU of that compute capability, or the CPU."""

    capability: tuple[int, int] | None = None
    cores: int = 2
    memory_bytes: int = 2**34

    @property
    def is_gpu(self) -> bool:
        return self.capability is not None


def optimise(concrete: Any, device: Device) -> Any:
    """The concrete function's graph after Grappler, as a GraphDef with its library; variables are VarHandleOps in it."""
    try:
        from tensorflow.core.protobuf import config_pb2
        from tensorflow.python.grappler import tf_optimizer
    except ImportError as error:
        raise MissingError(
            f"TensorFlow's graph optimiser is not where it was in the tested version (2.21.0): {error}",
            "Install tensorflow 2.21, or ask for the compiled step: --engine xla.",
        ) from error
    meta = meta_graph(concrete, CARD if device.is_gpu else HOST)
    if device.is_gpu:
        functions = (node.op for function in meta.graph_def.library.function for node in function.node_def)
        register(
            {*(node.op for node in meta.graph_def.node), *functions}
            - {f.signature.name for f in meta.graph_def.library.function}
        )
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    return tf_optimizer.OptimizeGraph(config, meta, cluster=cluster(device), strip_default_attributes=False)


def meta_graph(concrete: Any, place: str) -> Any:
    """What Grappler takes: the graph, what is fetched from it, and every node on its device."""
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow.python.training import saver

    graph = concrete.graph
    meta = saver.export_meta_graph(graph_def=graph.as_graph_def(add_shapes=True), graph=graph)
    fetched = meta_graph_pb2.CollectionDef()
    names = [output.op.name for output in graph.outputs] + [op.name for op in graph.control_outputs]
    fetched.node_list.value.extend(dict.fromkeys(names))
    meta.collection_def["train_op"].CopyFrom(fetched)
    handles = variable_handles(concrete)
    for function in meta.graph_def.library.function:
        for node in function.node_def:
            keep_loop(node)
    for node in meta.graph_def.node:
        node.device = place
        keep_loop(node)
        if node.name in handles:
            make_handle(node, *handles[node.name])
    return meta


def keep_loop(node: Any) -> None:
    """A loop stays one op with a body, which can be laid out, where the runtime would turn it into jumps."""
    if "_lower_using_switch_merge" in node.attr:
        node.attr["_lower_using_switch_merge"].b = False


def variable_handles(concrete: Any) -> dict[str, tuple[Any, Any]]:
    """Placeholder's name → shape and dtype of the variable that it stands for."""
    by_handle = {id(variable.handle): variable for variable in concrete.graph.variables}
    inside = {id(outer): inner for outer, inner in concrete.graph.captures}
    return {
        inside[key].op.name: (variable.shape, variable.dtype) for key, variable in by_handle.items() if key in inside
    }


def make_handle(node: Any, shape: Any, dtype: Any) -> None:
    """A placeholder becomes the variable's handle, so that the optimiser knows the variable's shape, as the runtime does."""
    node.op = "VarHandleOp"
    for name in list(node.attr):
        del node.attr[name]
    node.attr["dtype"].type = dtype.as_datatype_enum
    node.attr["shape"].shape.CopyFrom(shape.as_proto())
    node.attr["shared_name"].s = node.name.encode()
    node.attr["container"].s = b""


def cluster(device: Device) -> Any:
    from tensorflow.core.protobuf import device_properties_pb2 as properties
    from tensorflow.python.grappler import cluster as grappler_cluster

    host = properties.DeviceProperties(type="CPU", num_cores=device.cores, frequency=2000, memory_size=CPU_MEMORY_BYTES)
    devices = [properties.NamedDevice(name=HOST, properties=host)]
    if device.capability is not None:
        card = properties.DeviceProperties(
            type="GPU",
            num_cores=100,
            frequency=1500,
            memory_size=device.memory_bytes,
            environment={"architecture": f"{device.capability[0]}.{device.capability[1]}", "cudnn": "90300"},
        )
        devices.append(properties.NamedDevice(name=CARD, properties=card))
    return grappler_cluster.Cluster(devices=devices)
