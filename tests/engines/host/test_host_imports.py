"""The host engine describes at the edge and computes without a framework."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["assemble", "describe", "limits", "tfdata"])
def test_importing_it_imports_no_framework(module):
    code = f"import sys, legroom.engines.host.{module}; print([n for n in ('tensorflow', 'keras', 'jax', 'numpy') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
