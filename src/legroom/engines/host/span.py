"""A number that is not quite known: its lowest, its likely and its highest value, with the few sums that the host needs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes (or a count of elements) between two bounds; low ≤ size ≤ high always."""

    low: int
    size: int
    high: int

    def __post_init__(self) -> None:
        if not self.low <= self.size <= self.high:
            raise ValueError(f"Invalid Span: {self.low} ≤ {self.size} ≤ {self.high} does not hold.")

    def __add__(self, other: "Span") -> "Span":
        return Span(self.low + other.low, self.size + other.size, self.high + other.high)

    def __mul__(self, factor: "Span | float") -> "Span":
        if isinstance(factor, Span):
            return Span(self.low * factor.low, self.size * factor.size, self.high * factor.high)
        return Span(int(self.low * factor), int(self.size * factor), int(self.high * factor))

    def times(self, low: float, size: float, high: float) -> "Span":
        """The span times a factor that has bounds of its own."""
        return Span(int(self.low * low), int(self.size * size), int(self.high * high))

    def over(self, other: "Span") -> "Span":
        """What this one takes beyond the other, bound by bound; nothing where it takes less. It may need sorting."""
        return ordered(max(0, self.low - other.low), max(0, self.size - other.size), max(0, self.high - other.high))

    def at_least(self, other: "Span") -> "Span":
        return Span(max(self.low, other.low), max(self.size, other.size), max(self.high, other.high))

    def at_most(self, other: "Span") -> "Span":
        return Span(min(self.low, other.low), min(self.size, other.size), min(self.high, other.high))


NOTHING = Span(0, 0, 0)


def exactly(value: int) -> Span:
    return Span(value, value, value)


def ordered(low: int, size: int, high: int) -> Span:
    """A span from three numbers that may have crossed: the bounds give way to the likely value."""
    return Span(min(low, size), size, max(size, high))


def total(spans: "list[Span] | tuple[Span, ...]") -> Span:
    return Span(sum(span.low for span in spans), sum(span.size for span in spans), sum(span.high for span in spans))
