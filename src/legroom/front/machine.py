"""What this machine has: frameworks, compilers, a GPU, memory."""

import importlib.metadata
import os
import platform
from typing import Any

import psutil

from legroom import __version__
from legroom.engines.cache import folder as cache_folder
from legroom.engines.xla.environment import Environment, home
from legroom.engines.xla.releases import Release, release_for
from legroom.front.target import gpu_of_this_machine
from legroom.records import Framework

DISTRIBUTIONS: dict[Framework, tuple[str, ...]] = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tf-nightly"),
    "jax": ("jax",),
}
MEMORY_SETTINGS = (
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_ALLOCATOR",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_FLAGS",
    "TF_XLA_FLAGS",
    "KERAS_BACKEND",
    "CUDA_VISIBLE_DEVICES",
)


def version_of(*names: str) -> str | None:
    """The installed version of the first of these distributions, without importing it."""
    for name in names:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def frameworks() -> dict[Framework, str]:
    found = {name: version_of(*names) for name, names in DISTRIBUTIONS.items()}
    return {name: version for name, version in found.items() if version is not None}


def releases_wanted() -> list[Release]:
    """The XLA releases that match what is installed, each once."""
    wanted = {
        release.version: release for release in (release_for(name, version) for name, version in frameworks().items())
    }
    return list(wanted.values())


def examine() -> dict[str, Any]:
    """Everything that `legroom doctor` reports, as plain data."""
    gpu = gpu_of_this_machine()
    memory = psutil.virtual_memory()
    return {
        "schema": 1,
        "legroom": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "keras": version_of("keras"),
        "frameworks": dict(frameworks()),
        "oracle": [
            {"release": release.version, "installed": Environment(release.version).installed, "exact": release.matches}
            for release in releases_wanted()
        ],
        "oracle_folder": str(home()),
        "cache_folder": str(cache_folder()),
        "gpu": None if gpu is None else gpu.name,
        "cores": os.cpu_count(),
        "ram_total_bytes": memory.total,
        "ram_available_bytes": memory.available,
        "settings": {name: os.environ[name] for name in MEMORY_SETTINGS if name in os.environ},
    }
