"""When the kernels that run side by side end. Those that use all cores slow each other down on a CPU; on a GPU the host only launches."""

from heapq import heappop, heappush

WIDE_SECONDS = 5e-5  # a kernel of this length is cut into shards for all cores


class Clock:
    """Kernels that do not mind each other."""

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, int]] = []
        self.now = 0.0
        self.order = 0

    def __bool__(self) -> bool:
        return bool(self.heap)

    def start(self, thread: int, seconds: float) -> None:
        self.order += 1
        heappush(self.heap, (self.now + seconds, self.order, thread))

    def end_next(self) -> int:
        """The thread whose kernel ends first; it is then."""
        self.now, _, thread = heappop(self.heap)
        return thread


class SharedClock(Clock):
    """Kernels on cores: a long one uses all that are free, and shares them with other long ones. Short ones keep one core each."""

    def __init__(self, cores: int) -> None:
        super().__init__()
        self.cores = cores
        self.left: dict[int, float] = {}
        self.wide: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self.left)

    def start(self, thread: int, seconds: float) -> None:
        self.left[thread] = seconds
        if seconds > WIDE_SECONDS:
            self.wide.add(thread)

    def end_next(self) -> int:
        """The thread whose kernel ends first; it is then."""
        rate = self.rate()
        wide = self.wide
        thread = min(self.left, key=lambda one: self.left[one] / rate if one in wide else self.left[one])
        passed = self.left.pop(thread) / (rate if thread in wide else 1.0)
        for other in self.left:
            self.left[other] = max(0.0, self.left[other] - passed * (rate if other in wide else 1.0))
        self.wide.discard(thread)
        self.now += passed
        return thread

    def rate(self) -> float:
        """Of its speed alone, what a long kernel has now."""
        if not self.wide:
            return 1.0
        free = max(1, self.cores - (len(self.left) - len(self.wide)))
        return min(1.0, free / self.cores / len(self.wide))
