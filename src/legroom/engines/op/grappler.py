"""TensorFlow's own graph optimiser, run for a device that is not there.

The device is described to Grappler as a virtual cluster, so that what depends on it (the layout of convolutions, fused
kernels) comes out as it would there. Private names used, tested with TensorFlow 2.21.0: `tensorflow.python.grappler`,
`FuncGraph.control_outputs`.
"""

from dataclasses import dataclass
from typing import Any

from legroom.engines.op.gpu_placeholders import register
from legroom.engines.op.inlining import has_loops, keep_whole, without_strict_inputs
from legroom.errors import MissingError

HOST = "/job:localhost/replica:0/task:0/device:CPU:0"
CPU_MEMORY_BYTES = 2**28  # what TensorFlow says of every CPU: above 80% of it, sums of three and more are rewritten
FULL = 0.8  # of a device's memory: from there on the optimiser rewrites sums
PARAMETER = "_legroom_parameter"  # on a node that stands for one: its place
CARD = "/job:localhost/replica:0/task:0/device:GPU:0"


@dataclass(frozen=True, slots=True)
class Device:
    """Where the step will run: a GPU of that compute capability, or the CPU.

    How fast a card is decides in which order the optimiser thinks that ops run, and so which sums it rewrites when memory is short.
    """

    capability: tuple[int, int] | None = None
    cores: int = 2
    memory_bytes: int = 2**34
    multiprocessors: int = 100
    clock_mhz: int = 1500
    bandwidth_bytes_per_second: int = 10**12

    @property
    def is_gpu(self) -> bool:
        return self.capability is not None


def optimise(concrete: Any, device: Device, *, keep_loops: bool = True) -> Any:
    """The concrete function's graph after Grappler, as a GraphDef with its library; variables are VarHandleOps in it.

    A branch stays one op, and so does a loop unless `keep_loops` is False: the runtime turns both into jumps. It does so before it
    optimises; here the optimiser does it, in a round of its own, and what it adds of its own is taken away again.
    """
    try:
        from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2
        from tensorflow.python.grappler import tf_optimizer
    except ImportError as error:
        raise MissingError(
            f"TensorFlow's graph optimiser is not where it was in the tested version (2.21.0): {error}",
            "Install tensorflow 2.21, or ask for the compiled step: --engine xla.",
        ) from error
    meta = meta_graph(concrete, CARD if device.is_gpu else HOST, keep_loops=keep_loops)
    if device.is_gpu:
        functions = (node.op for function in meta.graph_def.library.function for node in function.node_def)
        register(
            {*(node.op for node in meta.graph_def.node), *functions}
            - {f.signature.name for f in meta.graph_def.library.function}
        )
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    if not keep_loops and has_loops(meta.graph_def):
        first = config_pb2.ConfigProto()
        first.graph_options.rewrite_options.CopyFrom(config.graph_options.rewrite_options)
        first.graph_options.rewrite_options.optimizers.append("function")
        first.graph_options.rewrite_options.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.ONE
        inlined = tf_optimizer.OptimizeGraph(first, meta, cluster=cluster(device), strip_default_attributes=False)
        meta.graph_def.CopyFrom(without_strict_inputs(inlined))
    if (
        not concrete.graph.outputs
    ):  # then the runtime's optimiser does not know what is fetched, and leaves dependencies alone
        config.graph_options.rewrite_options.dependency_optimization = rewriter_config_pb2.RewriterConfig.OFF
    if device.is_gpu and not meta.graph_def.library.function and surely_fits(concrete.graph, device.memory_bytes):
        config.graph_options.rewrite_options.memory_optimization = rewriter_config_pb2.RewriterConfig.NO_MEM_OPT
    elif device.is_gpu:
        # Not what it moves to the host: that is another choice in every process, so nothing may depend on it.
        heuristics = rewriter_config_pb2.RewriterConfig.SCHEDULING_HEURISTICS
        config.graph_options.rewrite_options.memory_optimization = heuristics
    optimised = tf_optimizer.OptimizeGraph(config, meta, cluster=cluster(device), strip_default_attributes=False)
    return importable(optimised)


def surely_fits(graph: Any, memory_bytes: int) -> bool:
    """Whether every tensor of a graph without functions, and a transposed copy of each, would fit at once into what the optimiser
    takes for full. Then it changes nothing for the sake of memory, and need not time the whole step to find that out.
    """
    total = 0
    for operation in graph.get_operations():
        for output in operation.outputs:
            elements = output.shape.num_elements()
            if elements is None:
                return False
            total += elements * max(1, output.dtype.size)
    return 2 * total <= FULL * memory_bytes


def meta_graph(concrete: Any, place: str, *, keep_loops: bool = True) -> Any:
    """What Grappler takes: the graph, what is fetched from it, and every node on its device."""
    from tensorflow.core.protobuf import meta_graph_pb2

    graph = concrete.graph
    meta = meta_graph_pb2.MetaGraphDef(graph_def=graph.as_graph_def())
    arrange(meta.graph_def, concrete)
    fetched = meta_graph_pb2.CollectionDef()
    names = [*returned(concrete), *(op.name for op in graph.control_outputs)]
    fetched.node_list.value.extend(dict.fromkeys(names))
    meta.collection_def["train_op"].CopyFrom(fetched)
    handles = variable_handles(concrete)
    keep_whole(meta.graph_def, keep_loops=keep_loops)
    for node in meta.graph_def.node:
        node.device = place
        if node.name in handles:
            make_handle(node, *handles[node.name])
    return meta


def arrange(definition: Any, concrete: Any) -> None:
    """In the order in which the runtime hands a function to the optimiser: its parameters first, what it returns at the end.

    The optimiser sorts what it is given, so that nodes come out, and run, in another order if this one is another. Of a
    Placeholder it takes the shape to be unknown, since anything could be fed; the runtime tells it the shape. So a parameter is a
    FakeParam, the op without inputs whose shape is known and whose value is not, and told apart from others by an attribute.
    """
    parameters = {tensor.op.name: place for place, tensor in enumerate(concrete.inputs)}
    nodes = sorted(definition.node, key=lambda node: parameters.get(node.name, len(parameters)))
    ordered = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del definition.node[:]
    definition.node.extend(ordered)
    for node in definition.node:
        if node.op == "Placeholder" and node.name in parameters:
            node.op = "FakeParam"
            node.attr[PARAMETER].i = parameters[node.name]
    for name, output in zip(returned(concrete), concrete.graph.outputs, strict=True):
        node = definition.node.add(name=name, op="Identity", input=[output.name.removesuffix(":0")])
        node.attr["T"].type = output.dtype.as_datatype_enum


def importable(definition: Any) -> Any:
    """What `arrange` made of the parameters, undone.

    Without the device, which all of them share: to import each node under its own takes half of the import's time.
    """
    for node in definition.node:
        node.ClearField("device")
        if PARAMETER in node.attr:
            node.op = "Placeholder"
            del node.attr[PARAMETER]
    return definition


def returned(concrete: Any) -> list[str]:
    """The names of the nodes that stand for what the function returns: as the runtime names them, since the optimiser walks the graph from what is
    fetched in the order of the names."""
    return [f"{output.name}_RetVal" for output in concrete.function_def.signature.output_arg]


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
            num_cores=device.multiprocessors,
            frequency=device.clock_mhz,
            bandwidth=device.bandwidth_bytes_per_second // 1000,
            memory_size=device.memory_bytes,
            environment={"architecture": f"{device.capability[0]}.{device.capability[1]}", "cudnn": "90300"},
        )
        devices.append(properties.NamedDevice(name=CARD, properties=card))
    return grappler_cluster.Cluster(devices=devices)
