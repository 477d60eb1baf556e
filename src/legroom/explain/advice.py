"""What to do about a cause, the most useful first for this very error, with the saving where it can be reckoned."""

from collections.abc import Callable, Iterator

from legroom.explain.batches import smaller_batch
from legroom.explain.story import Story
from legroom.explain.ways import (
    GROWTH,
    KERNEL_LOG,
    async_allocator,
    less_preallocation,
    plan_command,
    who_holds_it,
)
from legroom.records.diagnosis import Advice, CauseName, Diagnosis

PAGES = "docs/causes"
ALSO_LIKELY = 0.2
MOST_ADVICE = 6


def advise(found: Diagnosis, story: Story) -> tuple[Advice, ...]:
    """The advice of the likeliest cause, then the first of each other that is likely; the cause's page stands in `why`."""
    advice: list[Advice] = []
    for place, cause in enumerate(found.causes):
        if place and (cause.probability < ALSO_LIKELY or cause.cause == "unknown"):
            continue
        wanted = [paged(each, cause.cause) for each in WAYS[cause.cause](found, story)]
        advice += wanted if place == 0 else wanted[:2]
    by_title: dict[str, Advice] = {}
    for each in advice:
        by_title.setdefault(each.title, each)
    return tuple(by_title.values())[:MOST_ADVICE]


def paged(advice: Advice, cause: CauseName) -> Advice:
    return Advice(advice.title, f"{advice.why} See {PAGES}/{cause}.md", advice.how, advice.saves_bytes)


def for_batch(found: Diagnosis, story: Story) -> Iterator[Advice]:
    if smaller := smaller_batch(found):
        yield Advice(
            f"Train with a batch of at most {smaller.smaller}",
            f"Of {smaller.batch} examples, {smaller.smaller} fit up to the place where it failed; what comes later may need fewer.",
            f"model.fit(..., batch_size={smaller.smaller})",
            smaller.saves_bytes,
        )
    yield Advice(
        "Keep the batch and let Legroom make the step fit",
        "Micro-batches inside one step and recomputed layers leave what is learned as it is.",
        plan_command(found),
    )
    if found.dtype in ("float32", None) and not (found.device or "").startswith("CPU"):
        yield Advice(
            "Mixed precision",
            "Activations take half; what is learned changes a little, and a model that is mostly weights gains nothing.",
            'keras.mixed_precision.set_global_policy("mixed_bfloat16")',
            None if not found.failed_bytes else found.failed_bytes // 2,
        )


def for_tensor(found: Diagnosis, story: Story) -> Iterator[Advice]:
    over = None
    if found.failed_bytes and found.limit_bytes and found.failed_bytes > found.limit_bytes:
        over = found.failed_bytes - found.limit_bytes
    where = f" of {found.layer or found.op}" if found.layer or found.op else ""
    shape = "" if found.tensor_shape is None else f" of shape {list(found.tensor_shape)}"
    yield Advice(
        f"Make the tensor{where} smaller",
        f"One tensor{shape} is larger than what there is; freeing other memory does not help.",
        "keras.layers.GlobalAveragePooling2D()  # instead of Flatten() before a Dense, a smaller input, or parts in a loop",
        over,
    )
    if smaller := smaller_batch(found):
        yield Advice(
            f"Or a batch of at most {smaller.smaller}",
            f"This tensor holds {smaller.batch} examples.",
            f"model.fit(..., batch_size={smaller.smaller})",
            smaller.saves_bytes,
        )
    yield Advice(
        "See which layers are large before training", "An estimate needs no GPU.", plan_command(found, "estimate")
    )


def for_weights(found: Diagnosis, story: Story) -> Iterator[Advice]:
    weight = found.failed_bytes
    yield Advice(
        "An optimizer with less state",
        "Adam keeps two more copies of every weight, momentum one, SGD none.",
        'model.compile(optimizer=keras.optimizers.SGD(1e-2), ...)  # or "adafactor"',
        None if weight is None or found.tensor_shape is None else 2 * weight,
    )
    yield Advice(
        "Find the layers that hold the weights", "Few layers hold most of them.", plan_command(found, "estimate")
    )
    yield Advice(
        "Fewer weights",
        "A Dense behind Flatten and a wide embedding are what mostly holds them.",
        "keras.layers.GlobalAveragePooling2D()  # instead of Flatten(); or a smaller Dense, or LoRA",
    )


def for_fragmentation(found: Diagnosis, story: Story) -> Iterator[Advice]:
    torn = None
    if found.free_bytes is not None and found.largest_free_bytes is not None:
        torn = max(0, found.free_bytes - found.largest_free_bytes)
    if story.has("torch_reserved", "torch_idle"):
        yield Advice(
            "Let PyTorch's segments grow",
            "Its free memory is there, in pieces.",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
            torn,
        )
    elif not (found.device or "").startswith("CPU"):
        yield async_allocator(found, torn)
    yield from for_batch(found, story)


def for_growth(found: Diagnosis, story: Story) -> Iterator[Advice]:
    yield Advice(
        "Keep numbers, not tensors",
        "A loss or a prediction that is kept as a tensor keeps what it was made from.",
        "losses.append(float(loss))  # instead of losses.append(loss)",
    )
    yield Advice(
        "Free what an earlier model left",
        "Models built in a loop stay until the session is cleared.",
        "keras.backend.clear_session(); gc.collect()",
    )
    yield Advice(
        "Measure after each epoch",
        "What rises from epoch to epoch is held by the program.",
        'print(tf.config.experimental.get_memory_info("GPU:0"))',
    )


def for_sharing(found: Diagnosis, story: Story) -> Iterator[Advice]:
    yield who_holds_it(found)
    if not story.has("torch_reserved", "torch_idle"):
        yield GROWTH
        yield less_preallocation()
    yield from list(for_batch(found, story))[:1]


def for_dataset(found: Diagnosis, story: Story) -> Iterator[Advice]:
    if story.has("shuffle"):
        yield Advice(
            "Shuffle examples, not batches",
            "`batch(b).shuffle(n)` holds n batches, `shuffle(n).batch(b)` n examples.",
            "ds = ds.shuffle(1000).batch(32)",
        )
    if found.dtype == "float64" and found.failed_bytes:
        yield Advice(
            "Keep the data as float32, or as uint8",
            "Images are bytes; float64 takes eight times as much.",
            "x = x.astype('uint8')  # and keras.layers.Rescaling(1/255) in the model",
            found.failed_bytes - found.failed_bytes // 8,
        )
    yield Advice(
        "Read the data when it is needed",
        "Only the batches that are being trained on must be in RAM.",
        "keras.utils.image_dataset_from_directory(path, batch_size=32)  # or tf.data.Dataset.from_generator, np.load(file, mmap_mode='r')",
        found.failed_bytes,
    )
    yield Advice(
        "See what the pipeline holds",
        "Arrays, caches, shuffle buffers and prefetched batches, in bytes.",
        plan_command(found, "estimate"),
    )


def for_host(found: Diagnosis, story: Story) -> Iterator[Advice]:
    yield Advice(
        "See what the kernel ended, and how much it held",
        "The kernel's log names the process and its size.",
        KERNEL_LOG,
    )
    yield Advice(
        "See what of the host's RAM training needs",
        "Data, pipeline and process, against the limit that really holds.",
        plan_command(found, "estimate"),
    )
    yield Advice(
        "Fewer workers and a shorter queue",
        "Every worker process and every prefetched batch is a copy.",
        "ds = ds.prefetch(2)  # and PyDataset(workers=1, max_queue_size=2)",
    )


def for_constant(found: Diagnosis, story: Story) -> Iterator[Advice]:
    yield Advice(
        "Hand data to the function as an argument",
        "An array that a graph refers to becomes part of the graph.",
        "tf.data.Dataset.from_generator(...)  # or step(x) with x as an argument; tf.Variable for tables",
        found.failed_bytes,
    )


def for_workspace(found: Diagnosis, story: Story) -> Iterator[Advice]:
    yield Advice(
        "Do not try out algorithms",
        "The first step tries some with large workspaces.",
        "TF_CUDNN_USE_AUTOTUNE=0 python train.py  # JAX, XLA: XLA_FLAGS=--xla_gpu_autotune_level=0",
        found.failed_bytes,
    )
    yield less_preallocation()
    yield from for_batch(found, story)


def for_retracing(found: Diagnosis, story: Story) -> Iterator[Advice]:
    yield Advice(
        "Trace once",
        "Python numbers and new shapes make a new trace each.",
        "@tf.function(reduce_retracing=True)  # tensors instead of Python numbers; input_signature=[tf.TensorSpec([None, 784])]",
    )
    yield Advice(
        "Make the function outside the loop",
        "A function that is made anew is traced anew.",
        "step = tf.function(step)  # once, before the loop",
    )
    yield Advice("Equal batches", "The last, smaller batch is a shape of its own.", "ds.batch(32, drop_remainder=True)")


def for_cudnn(found: Diagnosis, story: Story) -> Iterator[Advice]:
    yield GROWTH
    yield less_preallocation()
    yield who_holds_it(found)


def for_nothing(found: Diagnosis, story: Story) -> Iterator[Advice]:
    yield Advice(
        "Nothing needs to be done",
        "The message is a warning; training goes on. More free memory may make it faster.",
        "TF_CPP_MIN_LOG_LEVEL=1 python train.py  # hides such messages",
    )


def for_unknown(found: Diagnosis, story: Story) -> Iterator[Advice]:
    if story.incidents or (story.has("mentioned") and not story.has("not_memory")):
        yield Advice(
            "Give the whole log",
            "The allocator's dump, above the traceback, says what was held.",
            "TF_CPP_MIN_LOG_LEVEL=0 python train.py 2>&1 | tee train.log; legroom explain train.log",
        )
        yield Advice("Ask for a prediction", "An estimate needs neither the GPU nor the log.", plan_command(found))


WAYS: dict[CauseName, Callable[[Diagnosis, Story], Iterator[Advice]]] = {
    "tensor_too_large": for_tensor,
    "batch_or_activations": for_batch,
    "weights_or_optimizer_state": for_weights,
    "fragmentation": for_fragmentation,
    "leak_or_growth": for_growth,
    "gpu_shared_or_preallocated": for_sharing,
    "host_ram_dataset": for_dataset,
    "host_ram_other": for_host,
    "graph_constant_too_large": for_constant,
    "workspace_or_autotune": for_workspace,
    "retracing": for_retracing,
    "cudnn_init_memory": for_cudnn,
    "not_an_error": for_nothing,
    "unknown": for_unknown,
}
