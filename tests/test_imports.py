"""The frameworks stay at the edges."""

import subprocess
import sys

import pytest

FRAMEWORKS = "tensorflow keras jax jaxlib numpy"


@pytest.mark.parametrize(
    "module",
    [
        *(
            "legroom",
            "legroom.cli",
            "legroom.records",
            "legroom.memory.estimate",
            "legroom.gpus",
            "legroom.report.text",
        ),
        *(
            "legroom.engines.xla.client",
            "legroom.engines.xla.schedule",
            "legroom.front.estimating",
            "legroom.capture.hooks",
            "legroom.watch.watching",
        ),
    ],
)
def test_importing_it_imports_no_framework(module):
    code = f"import sys, {module}; print([name for name in '{FRAMEWORKS}'.split() if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_rooms_import_only_rooms_above_them():
    import ast
    import pathlib

    import legroom

    order = [
        "errors",
        "units",
        "records",
        "gpus",
        "capture",
        "memory",
        "engines",
        "plans",
        "changes",
        "watch",
        "explain",
        "report",
        "data",
        "guard",
        "front",
        "running",
        "cli",
    ]
    root = pathlib.Path(legroom.__file__).parent
    wrong = []
    for path in root.rglob("*.py"):
        room = path.relative_to(root).parts[0].removesuffix(".py")
        if room not in order:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("legroom."):
                other = node.module.split(".")[1]
                if order.index(other) > order.index(room):
                    wrong.append(f"{path.relative_to(root)} imports {node.module}")
    assert wrong == []
