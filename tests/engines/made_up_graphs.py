"""Steps that nobody wrote: a few nodes whose kernels do what their attributes say, on an allocator that only counts."""

from hypothesis import strategies as st

from legroom.engines.op.clock import Clock
from legroom.engines.op.executor import Executor
from legroom.engines.op.graph import Graph, Node
from legroom.engines.op.ops import Array, Op
from legroom.engines.op.planned import Planned


def array(size_bytes):
    return Array((size_bytes,), "int8")


class MadeUpKernels:
    """Each op says itself what it shares, takes over, lends and takes; one output stands for all of them."""

    def shares(self, op, output):
        return 0 if op.kind == "ReadVariableOp" else op.attributes.get("shares")

    def may_reuse(self, op, output):
        return op.attributes.get("reuses", ())

    def lends(self, op):
        return op.attributes.get("lends", ())

    def output_bytes(self, op, output):
        return op.outputs[output].size_bytes

    def temporaries(self, op):
        return op.attributes.get("temporaries", ())

    def outputs_last(self, op):
        return op.attributes.get("outputs_last", False)

    def seconds(self, op):
        return op.attributes.get("seconds", 1.0)

    def clock(self):
        return Clock()

    def is_cheap(self, op):
        return op.attributes.get("cheap", False)


class Counting:
    """An allocator of bytes without addresses to fight over: each address is new, and freeing one twice is a KeyError."""

    def __init__(self):
        self.live = {}
        self.taken = 0
        self.in_use_bytes = self.peak_in_use_bytes = 0

    def allocate(self, size_bytes):
        self.taken += 1
        self.live[self.taken] = size_bytes
        self.in_use_bytes += size_bytes
        self.peak_in_use_bytes = max(self.peak_in_use_bytes, self.in_use_bytes)
        return self.taken

    def free(self, address):
        self.in_use_bytes -= self.live.pop(address)


class Draft:
    """A graph being written down. Nodes and tensors are the numbers that `add` and its like return."""

    def __init__(self):
        self.nodes, self.tensors, self.variables = [], [], []
        self.arguments, self.constants, self.returned = [], [], []

    def tensor(self, kind):
        self.tensors.append(kind)
        return len(self.tensors) - 1

    def argument(self, size_bytes):
        self.arguments.append(self.tensor(array(size_bytes)))
        return self.arguments[-1]

    def constant(self, size_bytes):
        self.constants.append(self.tensor(array(size_bytes)))
        return self.constants[-1]

    def variable(self, size_bytes):
        """The variable's handle and its number."""
        self.variables.append(array(size_bytes))
        return self.tensor(Array((), "resource")), len(self.variables) - 1

    def run(self, name, inputs=(), outputs=(), after=(), variables=(), kind="Made", **attributes):
        """A node; returns its number and its output, or its outputs if there are several."""
        made = tuple(self.tensor(array(size)) for size in outputs)
        given = tuple(self.tensors[i] for i in inputs)
        op = Op(name, kind, given, tuple(array(size) for size in outputs), attributes)
        self.nodes.append(Node(op, tuple(inputs), made, tuple(after), tuple(variables)))
        return len(self.nodes) - 1, made[0] if len(made) == 1 else made

    def add(self, name, *inputs, size=100, **options):
        """A node with one output, by that output."""
        return self.run(name, inputs, (size,), **options)[1]

    def graph(self, parameters=(), **options):
        return Graph(
            tuple(self.nodes), tuple(self.tensors), tuple(self.variables), tuple(self.arguments), tuple(self.constants),
            tuple(self.returned), tuple(parameters), **options,
        )  # fmt: skip


class Watched(Executor):
    """An executor that writes down when nodes begin and end, and what they find."""

    def begin(self, number):
        self.log.append(("begin", number))
        super().begin(number)

    def end(self, number):
        self.log.append(("end", number))
        return super().end(number)

    def step(self):
        self.log = []
        super().step()


def executed(draft, threads=1, seed=0, steps=1, allocator=None):
    """The executor after some steps of the graph."""
    executor = Watched(Planned(draft.graph(), MadeUpKernels()), allocator or Counting(), threads, seed)
    executor.place()
    for _ in range(steps):
        executor.start_recording()
        executor.step()
    return executor


def names(executor):
    """The nodes in the order in which they ran."""
    return [executor.graph.nodes[number].op.name for number in executor.schedule]


def peak(draft, **options):
    return executed(draft, **options).allocator.peak_in_use_bytes


SIZES = (0, 10, 20, 40)


@st.composite
def drafts(draw):
    """Any graph that TensorFlow might run: nodes that share, take over, lend, read variables and change them."""
    draft = Draft()
    handles = [draft.variable(draw(st.sampled_from(SIZES))) for _ in range(draw(st.integers(0, 2)))]
    for _ in range(draw(st.integers(0, 2))):
        draft.argument(draw(st.sampled_from(SIZES)))
        draft.constant(draw(st.sampled_from(SIZES)))
    held = [*draft.arguments, *draft.constants]
    kinds = st.sampled_from(
        ["Made", "Made", "Made", "shares", *(["read", "update", "assign", "gather"] * bool(handles))]
    )
    for number in range(draw(st.integers(1, 14))):
        kind = draw(kinds)
        some = st.lists(st.sampled_from(held), max_size=3) if held else st.just([])
        after = draw(st.lists(st.integers(0, number - 1), max_size=2)) if number else []
        common = {"after": after, "cheap": draw(st.booleans()), "seconds": draw(st.sampled_from([1.0, 5.0]))}
        handle, variable = draw(st.sampled_from(handles)) if handles else (0, 0)
        size = draft.variables[variable].size_bytes if handles else 0
        like = [i for i in held if draft.tensors[i].size_bytes == size]
        if kind == "read":
            made = draft.run(f"n{number}", (handle,), (size,), variables=(variable,), kind="ReadVariableOp", **common)[
                1
            ]
            held.append(made)
        elif kind == "gather":
            made = draft.run(f"n{number}", (handle,), (10,), variables=(variable,), kind="ResourceGather", **common)[1]
            held.append(made)
        elif kind == "assign" and like:
            given = (handle, draw(st.sampled_from(like)))
            draft.run(f"n{number}", given, variables=(variable,), kind="AssignVariableOp", **common)
        elif kind == "update":
            given = (handle, *draw(some))
            draft.run(f"n{number}", given, variables=(variable,), kind="AssignAddVariableOp", **common)
        elif kind == "shares" and held:
            given = draw(st.sampled_from(held))
            held.append(draft.add(f"n{number}", given, size=draft.tensors[given].size_bytes, shares=0, **common))
        else:
            given = draw(some)
            sizes = draw(st.lists(st.sampled_from(SIZES), min_size=1, max_size=2))
            places = tuple(range(len(given)))
            temporaries = tuple(draw(st.lists(st.sampled_from(SIZES[1:]), max_size=2)))
            options = {"reuses": places, "lends": places, "temporaries": temporaries}
            draft.run(f"n{number}", given, sizes, **options, **common)
            held += draft.nodes[-1].outputs
    draft.returned = draw(st.lists(st.sampled_from(held), max_size=2)) if held else []
    return draft
