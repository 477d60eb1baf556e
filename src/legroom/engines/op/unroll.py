"""From TensorFlow's graph to a plain one: functions inlined, loops unrolled as often as they will turn, lists of tensors resolved.

A list of tensors (TensorList, what a TensorArray and the gradient of a loop are made of) is a Python list here while the graph
is laid out: whoever reads an element reads the tensor itself.
"""

from typing import Any

from legroom.engines.op.graph import COMPILED_CALL, LOOP_END, LOOP_GATE, Graph, Node
from legroom.engines.op.inlining import LOOPS
from legroom.engines.op.jumps import Looped
from legroom.engines.op.lists import LIST_KINDS, Lists
from legroom.engines.op.ops import Array, Op
from legroom.engines.op.sizes import Sizes
from legroom.engines.op.templates import Sketch, Template, read_function, read_graph, read_library, read_part
from legroom.engines.op.values import DTYPES, LARGEST

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
BRANCHES = ("If", "StatelessIf")
MOST_TRIPS = 20_000
UNDECIDED_TURNS = 100  # how often a loop may turn, for the upper bound, where only running would tell
PARALLEL_ITERATIONS = 10  # tf.while_loop's default


class ShapesChange(Exception):
    """A loop gave other shapes than it was given, and shapes of all that comes after it were inferred as if it had not."""

    def __init__(self, body: str) -> None:
        super().__init__(body)
        self.body = body


class Unroller:
    """Lays the nodes of one step out flat."""

    def __init__(self, definition: Any) -> None:
        """`definition`: a GraphDef, or one whose loops were put back together."""
        looped = definition if isinstance(definition, Looped) else None
        self.definition = looped.definition if looped else definition
        self.parts = looped.parts if looped else {}
        self.places = looped.places if looped else None
        self.library = {function.signature.name: function for function in self.definition.library.function}
        self.sizes = Sizes()
        self.tensors, self.variables = self.sizes.tensors, self.sizes.variables
        self.values, self.handles = self.sizes.values, self.sizes.handles
        self.nodes: list[Node] = []
        self.arguments: list[int] = []
        self.argument_names: list[str] = []
        self.constants: list[int] = []
        self.lists = Lists(self)
        self.variable_names: dict[str, int] = {}
        self.sketches: dict[Any, Sketch] = {}
        self.library_graph: Any = None
        self.constant_ids: dict[int, int] = {}
        self.notes: dict[str, None] = {}
        self.undecided_bytes = 0
        self.gate: int | None = None

    def unroll(self, returned: list[str], inputs: list[str]) -> Graph:
        """The whole step; `returned` are the names of the tensors that it hands back, `inputs` of the nodes that stand for its
        parameters, in their order."""
        known: dict[str, int] = {}
        places = {name: i for i, name in enumerate(inputs)}
        self.lay_out(read_graph(self.definition, self.places), known)
        return Graph(
            nodes=tuple(self.nodes),
            tensors=tuple(self.tensors),
            variables=tuple(self.variables),
            arguments=tuple(self.arguments),
            constants=tuple(self.constants),
            returned=tuple(known[name] for name in returned if name in known),
            parameters=tuple(places.get(name, -1) for name in (*self.variable_names, *self.argument_names)),
            unsized=tuple(self.sizes.unsized),
            notes=tuple(self.notes),
            undecided_bytes=self.undecided_bytes,
        )

    def add_node(self, op: Op, inputs: tuple[int, ...], outputs: tuple[int, ...], after: tuple[int, ...] = ()) -> int:
        variables = tuple(self.handles[i] for i in inputs if i in self.handles)
        if self.gate is not None and self.gate not in after:
            after = (*after, self.gate)
        self.nodes.append(Node(op, inputs, outputs, after, variables))
        return len(self.nodes) - 1

    def lay_out(self, sketch: Sketch, known: dict[str, int]) -> list[int]:
        """Adds a graph's nodes; `known` maps the names of its tensors to ours and is filled in. Returns the nodes added."""
        ran: dict[str, tuple[int, ...]] = {}
        late: dict[str, tuple[int, ...]] = {}  # constants that wait for nodes, and so do their readers
        start = len(self.nodes)
        for template in sketch.nodes:
            if template.outputs and template.outputs[0] in known and not template.inputs:
                continue
            waits = [
                *(ran.get(name, ()) for name in template.controls),
                *(late.get(name, ()) for name in template.inputs),
            ]
            after = tuple(dict.fromkeys(node for nodes in waits for node in nodes))
            ran[template.name] = self.lay_out_node(template, known, after)
            if template.kind == "Const" and after:
                late[template.outputs[0]] = ran[template.name] = after
        return list(range(start, len(self.nodes)))

    def lay_out_node(self, template: Template, known: dict[str, int], after: tuple[int, ...]) -> tuple[int, ...]:
        kind = template.kind
        if kind in ("Placeholder", "_Arg"):
            self.add_argument(template, known)
            return ()
        if kind == "VarHandleOp":
            self.add_handle(template, known)
            return ()
        if kind == "Const":
            self.add_constant(template, known)
            return ()
        inputs = [known[name] for name in template.inputs]
        before = len(self.nodes)
        if kind in CALLS and template.attributes.get("_XlaMustCompile"):
            results = self.compiled(template, inputs, after)
        elif kind in CALLS or kind in self.library:
            results = self.call(template.attributes.get("f", kind), inputs)
        elif kind in LOOPS:
            results = self.loop(template, inputs, after)
        elif kind in BRANCHES:
            results = self.branch(template, inputs)
        elif kind == "OptionalFromValue":
            results = [self.lists.new(list(inputs))]
        elif kind == "OptionalGetValue" and self.lists.elements.get(inputs[0]):
            results = self.lists.held(inputs[0])[1:]
        elif kind in LIST_KINDS or any(i in self.lists.elements for i in inputs):
            results = self.lists.lay_out(template, inputs, after)
        else:
            results = self.plain(template, inputs, after)
        known.update(zip(template.outputs, results, strict=False))
        return (len(self.nodes) - 1,) if len(self.nodes) > before else after

    def add_argument(self, template: Template, known: dict[str, int]) -> None:
        array = template.arrays[0]
        if array is None:
            array = Array((), template.dtypes[0])
            self.sizes.unsized[template.name] = None
        known[template.outputs[0]] = tensor = self.sizes.add(array)
        self.arguments.append(tensor)
        self.argument_names.append(template.name)

    def add_handle(self, template: Template, known: dict[str, int]) -> None:
        shape = template.operation.get_attr("shape")
        name = template.operation.get_attr("shared_name").decode() or template.name
        if name not in self.variable_names:
            self.variable_names[name] = len(self.variables)
            sizes = tuple(dimension.size for dimension in shape.dim)
            self.variables.append(Array(sizes, template.attributes["dtype"]))
        known[template.outputs[0]] = tensor = self.sizes.add(Array((), "resource"))
        self.handles[tensor] = self.variable_names[name]

    def add_constant(self, template: Template, known: dict[str, int]) -> None:
        key = id(template)
        if key not in self.constant_ids:
            array = template.arrays[0]
            assert array is not None
            tensor = self.constant_ids[key] = self.sizes.add(array)
            self.constants.append(tensor)
            if array.dtype in DTYPES and (template.operation.outputs[0].shape.num_elements() or 0) <= LARGEST:
                from tensorflow.python.framework import tensor_util

                self.values[tensor] = tensor_util.MakeNdarray(template.operation.get_attr("value"))
        known[template.outputs[0]] = self.constant_ids[key]

    def plain(self, template: Template, inputs: list[int], after: tuple[int, ...]) -> list[int]:
        """An ordinary op: it runs, and its outputs are new tensors."""
        arrays = self.sizes.arrays(template, inputs)
        outputs = [self.sizes.add(array) for array in arrays]
        self.sizes.note_values(template, inputs, outputs)
        if template.kind == "Identity" and inputs[0] in self.handles:
            self.handles[outputs[0]] = self.handles[inputs[0]]
        given = {k: tuple(self.values[i].ravel().tolist()) for k, i in enumerate(inputs) if i in self.values}
        attributes = {**template.attributes, "values": given} if given else template.attributes
        op = Op(template.name, template.kind, tuple(self.tensors[i] for i in inputs), arrays, attributes)
        self.add_node(op, tuple(inputs), tuple(outputs), after)
        return outputs

    def sketch_of(self, name: str, inputs: list[int]) -> Sketch:
        shapes = [self.tensors[i].shape if self.tensors[i].dtype not in ("resource", "variant") else () for i in inputs]
        key = (name, tuple(shapes))
        if key not in self.sketches:
            self.sketches[key] = self.read(name, shapes)
        return self.sketches[key]

    def read(self, name: str, shapes: list[tuple[int, ...]]) -> Sketch:
        if name in self.parts:
            return read_part(self.parts[name], shapes, self.definition.library)
        if self.library_graph is None:
            self.library_graph = read_library(self.definition)
        return read_function(self.library[name], shapes, self.library_graph)

    def call(self, name: str, inputs: list[int]) -> list[int]:
        sketch = self.sketch_of(name, inputs)
        known = dict(zip(sketch.arguments, inputs, strict=True))
        self.lay_out(sketch, known)
        return [known[result] for result in sketch.results]

    def compiled(self, template: Template, inputs: list[int], after: tuple[int, ...]) -> list[int]:
        """A function that XLA compiles: one op, whose outputs are known and whose insides are not."""
        sketch = self.sketch_of(template.attributes["f"], inputs)
        known = {name: array for node in sketch.nodes for name, array in zip(node.outputs, node.arrays, strict=True)}
        given = dict(zip(sketch.arguments, (self.tensors[i] for i in inputs), strict=True))
        found = [given.get(name) or known.get(name) for name in sketch.results]
        inside = [] if all(found) else self.sizes_inside(template.attributes["f"], inputs)
        arrays = tuple(array or inside[k] for k, array in enumerate(found))
        outputs = [self.sizes.add(array) for array in arrays]
        op = Op(template.name, COMPILED_CALL, tuple(self.tensors[i] for i in inputs), arrays)
        self.add_node(op, tuple(inputs), tuple(outputs), after)
        return outputs

    def sizes_inside(self, name: str, inputs: list[int]) -> list[Array]:
        """The arrays that a function gives, learnt by laying it out; what that adds is taken away again."""
        tensors, nodes, constants = len(self.tensors), len(self.nodes), len(self.constants)
        try:
            return [self.tensors[result] for result in self.call(name, inputs)]
        finally:
            del self.nodes[nodes:], self.constants[constants:]
            self.sizes.forget(tensors)
            self.constant_ids = {key: tensor for key, tensor in self.constant_ids.items() if tensor < tensors}

    def branch(self, template: Template, inputs: list[int]) -> list[int]:
        """The branch that is taken; where only running would tell, the one that makes more, and it is said."""
        predicate = self.values.get(inputs[0])
        if predicate is not None:
            taken = "then_branch" if bool(predicate) else "else_branch"
            return self.call(template.attributes[taken], inputs[1:])
        self.notes[f"{template.name} decides at run time: the branch that makes more is counted"] = None
        names = (template.attributes["then_branch"], template.attributes["else_branch"])
        return self.call(max(names, key=lambda name: self.made_bytes(name, inputs[1:])), inputs[1:])

    def made_bytes(self, name: str, inputs: list[int]) -> int:
        """What the ops of a function make, as far as TensorFlow can tell."""
        sketch = self.sketch_of(name, inputs)
        return sum(array.size_bytes for node in sketch.nodes for array in node.arrays if array is not None)

    def loop(self, template: Template, inputs: list[int], waits: tuple[int, ...] = ()) -> list[int]:
        """Iteration after iteration; one starts when so many before it have ended as TensorFlow lets run side by side."""
        state, outer = list(inputs), self.gate
        parallel = template.attributes.get("parallel_iterations") or PARALLEL_ITERATIONS
        ends: list[int] = []
        first = len(self.tensors)
        for turned in range(MOST_TRIPS):
            goes_on = self.turns(template, state)
            if goes_on is None:
                self.notes[f"how often {template.name} turns is decided at run time: counted as one turn"] = None
                if turned:
                    made = sum(array.size_bytes for array in self.tensors[first:])
                    self.undecided_bytes += UNDECIDED_TURNS * made
            if not (turned == 0 if goes_on is None else goes_on):
                break
            ended = ends[len(ends) - parallel] if len(ends) >= parallel else None
            before = (self.gate,) if ends else (outer, *waits)
            after = tuple(dict.fromkeys(n for n in (*before, ended) if n is not None))
            gate = Op(template.name, LOOP_GATE, (), ())
            self.gate = None
            self.gate = self.add_node(gate, (), (), after)
            sketch = self.sketch_of(template.attributes["body"], state)
            known = dict(zip(sketch.arguments, state, strict=True))
            ran = self.lay_out(sketch, known)
            state = [known[result] for result in sketch.results]
            ends.append(self.add_node(Op(template.name, LOOP_GATE, (), ()), (), (), tuple(ran)))
        self.gate = outer
        self.check_shapes(template, state)
        # Its invariants, and the lists that it has filled, are the loop's until it ends.
        passed = [old for old, new in zip(inputs, state, strict=True) if old == new]
        filled = [new for new in state if new in self.lists.elements]
        held = list(dict.fromkeys(i for tensor in (*passed, *filled) for i in self.lists.held(tensor)))
        op = Op(template.name, LOOP_END, tuple(self.tensors[i] for i in held), ())
        self.add_node(op, tuple(held), (), tuple(ends[-1:]) or waits)
        return self.left(template, inputs, state, ends[len(ends) - parallel] if len(ends) >= parallel else None)

    def left(self, template: Template, inputs: list[int], state: list[int], ended: int | None) -> list[int]:
        """What the loop made, outside: it leaves in the turn after the last one, which starts like the others when `ended` has."""
        if ended is None:
            return state
        found = []
        for old, new in zip(inputs, state, strict=True):
            array = self.tensors[new]
            if (
                old == new
                or new in self.lists.elements
                or new in self.handles
                or array.dtype in ("resource", "variant")
            ):
                found.append(new)
                continue
            found.append(self.sizes.add(array))
            if new in self.values:
                self.values[found[-1]] = self.values[new]
            self.add_node(Op(template.name, "Identity", (array,), (array,)), (new,), (found[-1],), (ended,))
        return found

    def check_shapes(self, template: Template, state: list[int]) -> None:
        body = template.attributes["body"]
        shapes = zip(template.arrays, state, strict=True)
        if body in self.parts and any(array is not None and array != self.tensors[new] for array, new in shapes):
            raise ShapesChange(body)

    def turns(self, template: Template, state: list[int]) -> bool | None:
        """Whether the loop goes round once more; None if only running would tell."""
        sketch = self.sketch_of(template.attributes["cond"], state)
        known = dict(zip(sketch.arguments, state, strict=True))
        before = len(self.nodes)
        self.lay_out(sketch, known)
        del self.nodes[before:]
        answer = self.values.get(known[sketch.results[0]])
        return None if answer is None else bool(answer)
