"""The oracle's private environment: one virtual environment for each XLA release, apart from the user's packages.

It holds jax and jaxlib, the CUDA 12 plugin of the same version without its CUDA libraries, and NVIDIA's wheel with ptxas
and libdevice. No driver, no CUDA toolkit: what a machine without any GPU software needs, 0.6 GB a release.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import platformdirs
from filelock import FileLock

from legroom.engines.xla.releases import Release, parse
from legroom.errors import EngineError, InputError, MissingError

NVCC = "nvidia-cuda-nvcc-cu12==12.8.93"  # CUDA 12's ptxas still compiles for P100 and V100; 13's does not
MARKER = "legroom-oracle.json"


def home() -> Path:
    """Where Legroom keeps what it installs: $LEGROOM_HOME, or the user's data folder."""
    chosen = os.environ.get("LEGROOM_HOME")
    return Path(chosen) if chosen else platformdirs.user_data_path("legroom")


def require_system() -> None:
    """The CUDA plugin exists for Linux on x86-64 only."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        raise MissingError(
            f"The XLA oracle runs on Linux x86-64 only; this is {platform.system()} on {platform.machine()}.",
            "Use WSL2 on Windows, or a Linux x86-64 container (e.g. python:3.11-slim) elsewhere.",
        )


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of one release, installed or not."""

    release: str

    @property
    def folder(self) -> Path:
        return home() / "oracle" / f"jaxlib-{self.release}"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def installed(self) -> bool:
        return (self.folder / MARKER).is_file() and self.python.exists()

    @property
    def cuda(self) -> Path:
        return next(iter(self.folder.glob("lib/python*/site-packages/nvidia/cuda_nvcc")), self.folder / "no-cuda")

    def variables(self) -> dict[str, str]:
        """The worker's whole environment: nothing of the user's settings for JAX, XLA or CUDA reaches it."""
        kept = {name: os.environ[name] for name in ("HOME", "TMPDIR", "LANG", "LC_ALL") if name in os.environ}
        return kept | {
            "PATH": f"{self.cuda / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "XLA_FLAGS": f"--xla_gpu_cuda_data_dir={self.cuda}",
            "JAX_PLATFORMS": "cpu",
            "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "0",
            "TF_CPP_VMODULE": "autotuner_util=2,autotuner_cache=2",  # names the convolutions: convolutions.py
        }

    def require(self) -> None:
        """Say how to install it if it is not there."""
        require_system()
        if not self.installed:
            raise MissingError(
                f"The XLA compiler for this framework (jaxlib {self.release}) is not installed yet.",
                f"Install it into its own environment (about 0.6 GB, your packages stay as they are):\n"
                f"  legroom oracle install --release {self.release}",
            )


def install(release: Release, say: Callable[[str], None] = lambda text: None, force: bool = False) -> Environment:
    """Make the environment of a release; two processes at once wait for each other, and half of one never stays."""
    require_system()
    parse(release.version)
    environment = Environment(release.version)
    environment.folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(str(environment.folder) + ".lock"):
        if environment.installed and not force:
            say(f"jaxlib {release.version} is installed already.")
            return environment
        shutil.rmtree(environment.folder, ignore_errors=True)
        say(f"making an environment for jaxlib {release.version}")
        run([sys.executable, "-m", "venv", str(environment.folder)], "make a virtual environment")
        pip = [str(environment.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        say("installing jax and jaxlib")
        run([*pip, f"jax=={release.version}", f"jaxlib=={release.version}"], "install jax")
        say("installing the CUDA plugin, ptxas and libdevice")
        plugin = [f"jax-cuda12-{part}=={release.version}" for part in ("plugin", "pjrt")]
        run([*pip, "--no-deps", *plugin, NVCC], "install the CUDA plugin")
        marker = {"release": release.version, "python": platform.python_version(), "nvcc": NVCC}
        (environment.folder / MARKER).write_text(json.dumps(marker))
    return environment


def run(command: list[str], purpose: str) -> None:
    """Run an installer without the user's Python settings leaking in; its last lines explain a failure."""
    kept = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    try:
        done = subprocess.run(command, env=kept, capture_output=True, text=True, check=False)
    except OSError as error:
        raise EngineError(f"Could not {purpose}: {error}") from error
    if done.returncode == 0:
        return
    tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-6:])
    if "No matching distribution" in tail:
        raise InputError(
            f"Could not {purpose}: that release does not exist for this Python.\n{tail}", "Pass another --release."
        )
    hint = "Is the package index reachable?"
    if "ensurepip" in tail:
        hint = "Install the venv module, e.g. `apt install python3-venv`."
    raise MissingError(f"Could not {purpose}:\n{tail}", hint)


def installed_releases() -> list[Environment]:
    """All releases that are installed here."""
    folder = home() / "oracle"
    names = sorted(path.parent.name for path in folder.glob(f"jaxlib-*/{MARKER}")) if folder.is_dir() else []
    return [Environment(name.removeprefix("jaxlib-")) for name in names]
