"""What is printed while something is tried out."""

import os
import subprocess
import sys

CODE = """
import os, sys
from legroom.capture.quiet import unheard
with unheard():
    print("no"); print("no", file=sys.stderr); os.write(2, b"no")
    try:
        with unheard():
            raise ValueError
    except ValueError:
        os.write(2, b"no")
print("yes"); print("yes", file=sys.stderr); os.write(2, b"yes")
"""


def test_nothing_is_heard_meanwhile_and_everything_afterwards():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert "no" not in done.stdout + done.stderr
    assert done.stdout == "yes\n"
    assert done.stderr.count("yes") == 2


def test_without_a_stderr_it_works_all_the_same():
    code = (
        "import os; os.close(2)\nfrom legroom.capture.quiet import unheard\nwith unheard(): print('no')\nprint('yes')"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, env=os.environ)
    assert done.stdout == "yes\n"
