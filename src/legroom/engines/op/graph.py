"""A training step as TensorFlow's executor sees it: nodes, the tensors between them, and the variables they read and change.

Plain data, loops unrolled and function calls inlined. A tensor or a node is named by its position.
"""

from dataclasses import dataclass, field

from legroom.engines.op.ops import Array, Op

LOOP_GATE = "NextIteration"  # a node of ours: an iteration may start
COMPILED_CALL = "XlaLaunch"  # a function that XLA compiles inside a step that runs op by op
LOOP_END = "Exit"  # a node of ours: a loop has ended, and what it held is let go


@dataclass(frozen=True, slots=True)
class Node:
    """One op of the graph. `after` are nodes that must have run though they hand nothing over; `variables` what it reads or changes."""

    op: Op
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    after: tuple[int, ...] = ()
    variables: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """One step. `arguments` and `constants` are tensors that exist before it runs; `returned` those that outlive it.

    `parameters` are the positions, among the parameters of the captured step, of the variables and then of the arguments (-1: none).
    """

    nodes: tuple[Node, ...]
    tensors: tuple[Array, ...]
    variables: tuple[Array, ...]
    arguments: tuple[int, ...] = ()
    constants: tuple[int, ...] = ()
    returned: tuple[int, ...] = ()
    parameters: tuple[int, ...] = ()
    unsized: tuple[str, ...] = field(default=())  # ops whose output has a size that only running it would tell
    notes: tuple[str, ...] = field(default=())
    undecided_bytes: int = (
        0  # what loops may make beyond what is laid out, where only running tells how often they turn
    )
