"""What Einsum's kernel takes beside its output (einsum_op_impl.h): it transposes operands into matrices and the product back.

Labels are sorted by what they are to the product: of a batch, free, contracted or summed away. An operand that is not in that order
(or in the order with free and contracted labels exchanged, which the matrix product takes as well) is copied.
"""

from dataclasses import dataclass
from math import prod

from legroom.engines.op.ops import Array, Op
from legroom.records.step import dtype_bytes

BROADCAST, BATCH, FREE, CONTRACT, REDUCE = range(5)
EXCHANGED = {BROADCAST: 0, BATCH: 1, CONTRACT: 2, FREE: 3, REDUCE: 4}

Label = tuple[int, int]
"""What the label is to the product, and its place in the equation."""


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand after its labels were sorted and those of its own summed away, and the copies that it took."""

    sizes: dict[Label, int]
    copies: tuple[int, ...]  # in bytes; all live until the last is made, which is kept

    @property
    def kept_bytes(self) -> int:
        return self.copies[-1] if self.copies else 0


def einsum(op: Op) -> tuple[int, ...]:
    if not all(array.size_bytes for array in (*op.inputs, *op.outputs)):
        return ()
    left, right = str(op.attributes["equation"]).replace(" ", "").split("->")
    terms = left.split(",")
    kinds = _label_kinds(terms, right)
    ranks = [len(array.shape) for array in op.inputs]
    last = len(kinds) + max(ranks)  # broadcast dimensions are matched from the right
    operands = [
        _sort(_labels(term, kinds, rank, last), array)
        for term, rank, array in zip(terms, ranks, op.inputs, strict=True)
    ]
    result = sorted({label for operand in operands for label in operand.sizes if label[0] in (BROADCAST, BATCH)})
    for operand in operands:
        result += [label for label in operand.sizes if label[0] == FREE]
    in_order = result == _labels(right, kinds, len(op.outputs[0].shape), last)

    kept = [operand.kept_bytes for operand in operands]
    if len(operands) == 1:
        kept = [] if in_order else kept  # what was made last is the output, or the input itself is
    elif not in_order:
        sizes: dict[Label, int] = {}
        for operand in operands:
            for label, size in operand.sizes.items():
                sizes[label] = max(size, sizes.get(label, 1))
        kept.append(dtype_bytes(op.outputs[0].dtype, prod(sizes[label] for label in result)))
    early = _while_sorting(operands) - op.outputs[0].size_bytes  # which is not there yet
    return (early,) if early > sum(kept) else tuple(size for size in kept if size)


def _while_sorting(operands: list[Operand]) -> int:
    most = before = 0
    for operand in operands:
        most = max(most, before + sum(operand.copies))
        before += operand.kept_bytes
    return most


def _label_kinds(terms: list[str], output: str) -> dict[str, Label]:
    kinds: dict[str, Label] = {}
    for letter in dict.fromkeys("".join(terms).replace(".", "")):
        alone = sum(letter in term for term in terms) == 1
        kind = (FREE if alone else BATCH) if letter in output else (REDUCE if alone else CONTRACT)
        kinds[letter] = (kind, len(kinds))
    return kinds


def _labels(term: str, kinds: dict[str, Label], rank: int, last: int) -> list[Label]:
    """The labels of one term, with as many in the ellipsis' place as the rank leaves."""
    before, dots, after = term.partition("...")
    broadcast = rank - len(before) - len(after) if dots else 0
    middle = [(BROADCAST, place) for place in range(last - broadcast, last)]
    return [*(kinds[letter] for letter in before), *middle, *(kinds[letter] for letter in after)]


def _sort(labels: list[Label], array: Array) -> Operand:
    exchanged = [(EXCHANGED[kind], place) for kind, place in labels]
    ordered = labels if exchanged == sorted(exchanged) else sorted(labels)
    by_label = dict(zip(labels, array.shape, strict=True))
    sizes = {label: by_label[label] for label in dict.fromkeys(ordered)}
    copies = [array.size_bytes] if ordered != labels else []
    if len(sizes) < len(labels):  # a label that stands twice: the diagonal
        copies.append(dtype_bytes(array.dtype, prod(sizes.values())))
    left = {label: size for label, size in sizes.items() if label[0] != REDUCE}
    if prod(left.values()) != prod(sizes.values()):
        copies.append(dtype_bytes(array.dtype, prod(left.values())))
    return Operand(left, tuple(copies))
