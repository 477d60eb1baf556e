"""Lines of code and commands that several causes have in common."""

from legroom.records.diagnosis import Advice, Diagnosis
from legroom.units import MIB

KERNEL_LOG = (
    "sudo dmesg -T | grep -i -E 'killed process|oom'  # in a container: kubectl describe pod, or docker inspect"
)
GROWTH = Advice(
    "Take the GPU's memory as it is needed",
    "By default TensorFlow takes all of the card at once; this must be set before the first tensor.",
    'for gpu in tf.config.list_physical_devices("GPU"): tf.config.experimental.set_memory_growth(gpu, True)',
)


def less_preallocation() -> Advice:
    return Advice(
        "On JAX, take less of the card beforehand",
        "JAX takes 75% of the card when it starts, and cuDNN, other libraries and other processes need some too.",
        "XLA_PYTHON_CLIENT_MEM_FRACTION=0.6 python train.py  # or XLA_PYTHON_CLIENT_PREALLOCATE=false",
    )


def async_allocator(found: Diagnosis, torn_bytes: int | None) -> Advice:
    """CUDA's own pool can put pieces together, as it deals in pages."""
    return Advice(
        "Use CUDA's own allocator, which does not tear",
        "The memory is there, only not in one piece.",
        "TF_GPU_ALLOCATOR=cuda_malloc_async python train.py",
        torn_bytes,
    )


def who_holds_it(found: Diagnosis) -> Advice:
    return Advice(
        "See who holds the card, and end what is left over",
        "Notebooks and crashed runs keep their memory until they end.",
        "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv  # then: kill PID",
    )


def plan_command(found: Diagnosis, verb: str = "plan") -> str:
    """The command with the budget that the log names."""
    on_gpu = (found.device or "").startswith("GPU")
    budget = (
        f" --budget {found.limit_bytes // MIB}MiB"
        if found.limit_bytes and found.limit_bytes >= MIB and (on_gpu or verb == "plan")
        else ""
    )
    return f"legroom {verb} train.py{budget}"
