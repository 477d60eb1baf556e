"""The oracle's worker: compiles programs for a GPU that is not there. Runs in the oracle's own environment, never in the user's.

This file is started by path with the oracle's Python and imports nothing of Legroom. It reads one JSON request a line from
stdin and answers with one JSON line on stdout. Each compilation happens in a forked child, so that a compiler that aborts
takes only the child with it, and so that the child can be stopped as soon as XLA has written its buffer assignment: all
memory is decided by then, and generating the machine code would take three quarters of the time (docs/how-it-works.md).

Tested with jaxlib 0.9.0 and 0.10.2. Private names used: `jax._src.lib.xla_client`, `jax._src.compiler`.
"""

import json
import os
import pathlib
import re
import signal
import sys
import time
import traceback
from typing import Any, NoReturn

REPORT = "-memory-usage-report.txt"  # the last text of XLA's dump about memory
NEXT = ".debug_options"  # written before the compilation, and again right after that report
POLL_SECONDS = 0.02

# From TensorFlow's HLO the only operation that StableHLO does not know: an identity.
COPY = re.compile(r"mhlo\.copy (%[\w#]+) : (tensor<[^>]*>)")


def load_module(program: Any, kind: str) -> Any:
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir

    if kind == "hlo":
        computation = xla_client.XlaComputation(program)
        program = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
        if isinstance(program, bytes):
            program = program.decode()
        program = COPY.sub(r"stablehlo.reshape \1 : (\2) -> \2", program)
    with mlir.make_ir_context():
        return ir.Module.parse(program)


def compile_program(request: dict[str, Any]) -> None:
    """Runs in the child. XLA leaves what we want in the dump folder on its way; the executable itself is of no use."""
    from jax._src import compiler
    from jax._src.lib import _jax
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(
        platform="cuda", topology_name="", topology="1x1x1", target_config=request["target"]
    )
    device = topology.devices[0]
    module = load_module(pathlib.Path(request["program"]).read_bytes(), request["format"])
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1, device_assignment=None)
    dump = [("xla_dump_to", request["dump"]), ("xla_dump_hlo_as_text", True)]
    options.env_option_overrides = dump + [tuple(pair) for pair in request["options"]]
    device.client.compile(module, _jax.DeviceList((device,)), options)


def run_child(request: dict[str, Any]) -> NoReturn:
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        compile_program(request)
    except BaseException:  # noqa: BLE001 - whatever it is, the child must not go on as a second worker
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def finished(dump: str) -> bool:
    """Whether the memory report is whole: XLA has gone on to write the next file."""
    written: dict[str, int] = {}
    for entry in os.scandir(dump):
        for suffix in (REPORT, NEXT):
            if entry.name.endswith(suffix):
                written[suffix] = entry.stat().st_mtime_ns
    return REPORT in written and written.get(NEXT, 0) >= written[REPORT]


def answer(request: dict[str, Any], asker: int) -> dict[str, Any]:
    """Compile in a child, until it has said all about memory, is out of time, or nobody is there to listen any more."""
    os.makedirs(request["dump"], exist_ok=True)
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        run_child(request)
    status = None
    outcome = "failed"
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if finished(request["dump"]) or (pid and status == 0):
            outcome = "ok"
        elif pid == 0 and time.monotonic() - started > request["limit_seconds"]:
            outcome = "timeout"
        elif pid == 0 and os.getppid() != asker:
            os.kill(child, signal.SIGKILL)
            os._exit(1)
        elif pid == 0:
            time.sleep(POLL_SECONDS)
            continue
        break
    if pid == 0:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    return {"status": outcome, "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None}


def main() -> None:
    asker = os.getppid()
    import warnings

    warnings.filterwarnings("ignore", message=".*os.fork.*")
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import jax
    import jax.experimental.rnn  # registers cuDNN's LSTM with the compiler
    import jax.experimental.topologies
    import jaxlib

    print(json.dumps({"status": "ready", "jax": jax.__version__, "jaxlib": jaxlib.__version__}), file=reply, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            result = answer(request, asker)
        except OSError as error:
            result = {"status": "failed", "signal": None, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps({"id": request["id"], **result}), file=reply, flush=True)


if __name__ == "__main__":
    main()
