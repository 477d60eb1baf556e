"""A BFC dump as each TensorFlow wrote it, made from a list of chunks: the formats are facts, the numbers are ours."""

from collections import Counter
from dataclasses import dataclass

UNITS = (("GiB", 1024**3, 2), ("MiB", 1024**2, 2), ("KiB", 1024, 1))


def human(size):
    """strings::HumanReadableNumBytes."""
    for unit, factor, digits in UNITS:
        if size >= factor:
            return f"{size / factor:.{digits}f}{unit}"
    return f"{size}B"


@dataclass
class Dump:
    """`chunks` are (size, in use) in the order of their addresses; `version` is TensorFlow's."""

    version: str
    limit: int
    chunks: list
    asked: int
    op: str = ""
    allocator: str = "GPU_0_bfc"

    @property
    def in_use(self):
        return sum(size for size, used in self.chunks if used)

    def prefix(self, level, line, file="core/common_runtime/bfc_allocator.cc"):
        if self.version == "1.0":
            return f"{level} tensorflow/{file}:{line}] "
        if self.version == "2.21":
            return f"{level}0000 00:00:1794725842.847655   23640 {file.rsplit('/', 1)[1]}:{line}] "
        root = "external/local_tsl/tsl/framework/bfc_allocator.cc" if self.version == "2.16" else f"tensorflow/{file}"
        return f"2020-04-01 13:06:02.957352: {level} {root}:{line}] "

    def lines(self):
        old = self.version.startswith("1.")
        yield from self.request(old)
        for size in (256, 512, 1024, 1048576, 268435456):
            counts = f"Total Chunks: 0, Chunks in use: 0{'' if self.version == '1.0' else '.'}"
            yield f"{self.prefix('I', 628)}Bin ({size}): \t{counts} 0B allocated for chunks. 0B in use in bin. 0B client-requested in use in bin."
        yield f"{self.prefix('I', 644)}Bin for {human(self.asked)} was 256.00MiB, Chunk State: "
        for size, used in self.chunks:
            if not used:
                yield f"{self.prefix('I', 650)}  Size: {human(size)} | Requested Size: 4B | in_use: 0, prev:   Size: 1.0KiB | Requested Size: 1.0KiB | in_use: 1"
        if not old:
            yield f"{self.prefix('I', 890)}Next region of size {sum(size for size, _ in self.chunks)}"
        yield from self.listed()
        yield f"{self.prefix('I', 677)}     Summary of in-use Chunks by size: "
        for size, count in sorted(Counter(size for size, used in self.chunks if used).items()):
            yield f"{self.prefix('I', 680)}{count} Chunks of size {size} totalling {human(count * size)}"
        yield f"{self.prefix('I', 684)}Sum Total of in-use chunks: {human(self.in_use)}"
        yield from self.statistics()

    def request(self, old):
        name = "" if self.version == "1.0" else f"Allocator ({self.allocator}) "
        ran = "Ran" if self.version == "1.0" else "ran"
        if old:
            yield f"{self.prefix('W', 273)}{name}{ran} out of memory trying to allocate {human(self.asked)}.  Current allocation summary follows."
        elif self.version in ("2.0", "2.3"):
            yield f"{self.prefix('W', 419)}{name}ran out of memory trying to allocate {human(self.asked)} (rounded to {self.asked})"
            yield "Current allocation summary follows."
        else:
            by = f"requested by op {self.op}" if self.op else "requested by op "
            yield f"{self.prefix('W', 479)}{name}ran out of memory trying to allocate {human(self.asked)} (rounded to {self.asked}){by}"
            yield "If the cause is memory fragmentation maybe the environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the situation. "
            yield "Current allocation summary follows."
            yield f"{self.prefix('I', 1027)}BFCAllocator dump for {self.allocator}"

    def listed(self):
        address = 0x7F4B94000000
        for number, (size, used) in enumerate(self.chunks, 1):
            if self.version.startswith("1."):
                yield f"{self.prefix('I', 662)}{'Chunk' if used else 'Free'} at 0x{address:x} of size {size}"
            elif self.version == "2.0":
                yield f"{self.prefix('I', 905)}{'InUse' if used else 'Free '} at {address:x} next {number} of size {size}"
            else:
                yield f"{self.prefix('I', 1066)}{'InUse' if used else 'Free '} at {address:x} of size {size} next {number}"
            address += size

    def statistics(self):
        pool = sum(size for size, _ in self.chunks)
        if self.version in ("2.0", "2.3"):
            yield f"{self.prefix('I', 964)}total_region_allocated_bytes_: {pool} memory_limit_: {self.limit} available bytes: {self.limit - pool} curr_region_allocation_bytes_: {2 * pool}"
        elif not self.version.startswith("1."):
            yield f"{self.prefix('I', 1119)}Total size in pool: {human(pool)} memory_limit_: {human(self.limit)} available size: {human(self.limit - pool)} curr_region_allocation_bytes_: 8.00GiB"
        yield f"{self.prefix('I', 686)}Stats: "
        shown = human if self.version == "2.21" else str
        for name, value in (("Limit", self.limit), ("InUse", self.in_use), ("MaxInUse", self.in_use)):
            yield f"{name + ':':<12}{shown(value):>24}"
        yield f"NumAllocs:                    4868\nMaxAllocSize:{shown(max(size for size, _ in self.chunks)):>23}\n"
        stars = round(100 * self.in_use / self.limit)
        yield f"{self.prefix('W', 277)}{'*' * stars}{'_' * (100 - stars)}"


def exception(dump, shape, dtype="float", node="", place="OP_REQUIRES failed at conv_ops.cc:1115 : "):
    """The lines behind a dump, as that version says them."""
    sizes = ",".join(map(str, shape))
    on = f" and type {dtype} on /job:localhost/replica:0/task:0/device:GPU:0 by allocator {dump.allocator}"
    words = "Resource exhausted" if dump.version != "2.21" else "RESOURCE_EXHAUSTED"
    on = "" if dump.version == "1.0" else on
    yield f"{dump.prefix('W', 1192, 'core/framework/op_kernel.cc')}{place}{words}: OOM when allocating tensor with shape[{sizes}]{on}"
    yield "Traceback (most recent call last):"
    yield '  File "train.py", line 62, in <module>'
    yield "    history = model.fit(x, y, batch_size=64)"
    yield '  File "/usr/lib/python3/dist-packages/tensorflow/python/client/session.py", line 1327, in _do_call'
    yield f"tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[{sizes}]{on}"
    if node and dump.version.startswith("1."):
        yield f'\t [[Node: {node} = Conv2D[T=DT_FLOAT, data_format="NCHW", padding="SAME", _device="/job:localhost/replica:0/task:0/device:GPU:0"](a, b)]]'
    elif node:
        yield f"\t [[node {node} (defined at train.py:62) ]] [Op:__inference_train_function_1234]"
    yield "Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_allocations_upon_oom to RunOptions for current allocation info."
