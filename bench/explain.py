"""What `legroom explain` takes for a log of a gigabyte, and whether mutated logs break it.

    .venv/bin/python bench/explain.py [--logs] [--fuzz 100000] [--seed 1] [--size 1000]

Four large logs, each read by the command itself in a process of its own: training output with one error in its middle, output in
which every line speaks of memory, one real dump again and again, and one line without an end.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOGS = Path(__file__).parents[1] / "tests" / "data" / "logs"
SLOWEST_SECONDS = 2.0
NOISE = (
    b"2024-03-29 16:39:36.771397: I train.py:131] step 12345 loss 0.1234 accuracy 0.9876 lr 0.0003 images/s 1234.5\n"
)
SPEAKING = b"step 12345 loss 0.1234 GPU memory allocated 1234.5 MB, images per second 812, learning rate 0.0003000\n"
ERRORS = ("fit_batch.log", "torn_regular.log")


def large_logs(folder, megabytes):
    """(name, path) of each, written one at a time and removed by the caller."""
    error = (LOGS / ERRORS[0]).read_bytes()
    half = megabytes * 500_000
    parts = {
        "other output around one error": lambda: ((NOISE, half), (error, len(error)), (NOISE, half)),
        "every line speaks of memory": lambda: ((SPEAKING, half), (error, len(error)), (SPEAKING, half)),
        "dumps, one after another": lambda: (((LOGS / ERRORS[1]).read_bytes(), 2 * half),),
        "one line without an end": lambda: (
            (NOISE.rstrip() + b" ", half),
            (error, len(error)),
            (NOISE.rstrip() + b" ", half),
        ),
    }
    for name, pieces in parts.items():
        path = folder / "large.log"
        with path.open("wb") as file:
            for text, size in pieces():
                block = text * (1 + 4_000_000 // len(text)) if size > len(text) else text
                for _ in range(max(1, size // len(block))):
                    file.write(block)
        yield name, path


def measure(path):
    """Seconds, peak RSS in MB and the cause, of the command on that file."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "legroom", "explain", "--json", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    output = process.stdout.read()
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return time.perf_counter() - started, usage.ru_maxrss / 1024, json.loads(output)["cause"]


def mutate(chance, texts):
    """A log changed as logs are: cut, glued, interleaved, with bytes and lines lost, doubled, mangled."""
    text = bytearray(chance.choice(texts))
    for _ in range(chance.randint(1, 6)):
        size = max(1, len(text))
        at, end = sorted((chance.randrange(size), chance.randrange(size)))
        kind = chance.randrange(10)
        if kind == 0:
            del text[at:end]
        elif kind == 1:
            text[at:at] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 40)))
        elif kind == 2:
            text[at:at] = text[at : min(end, at + 5000)]
        elif kind == 3:
            other = chance.choice(texts)
            start = chance.randrange(max(1, len(other)))
            text[at:at] = other[start : start + chance.randint(1, 3000)]
        elif kind == 4:
            text = bytearray(
                bytes(text).replace(b"\n", chance.choice((b"\r\n", b"\r", b"", b" ", b"\x1b[31m\n", b"\\n")))
            )
        elif kind == 5:
            for _ in range(20):
                text[chance.randrange(max(1, len(text)))] = chance.randrange(256) if text else 0
        elif kind == 6:
            digits = bytes(chance.choice(b"0123456789") for _ in range(chance.randint(1, 60)))
            text = bytearray(bytes(text).replace(bytes([chance.choice(b"123456789")]), digits, 5))
        elif kind == 7:
            lines = bytes(text).split(b"\n")
            chance.shuffle(lines)
            text = bytearray(b"\n".join(lines))
        elif kind == 8:
            text = text[at:]
        else:
            text[at:at] = chance.choice(
                (b"[", b"(", b"{{node ", b"shape[", b" " * 3000, b"\x1b]0;", b"9" * 500, b"a/" * 400, b"\x08" * 50)
            )
        text = text[:60_000] or bytearray(b"x")
    return bytes(text)


def fuzz(count, seed, say=print):
    """How many mutated logs were read, and the slowest; raises what they raise, but for the refusal of what is no text."""
    from legroom.errors import InputError
    from legroom.explain.diagnose import explain
    from legroom.report.diagnosis import diagnosis_text
    from legroom.report.diagnosis_json import diagnosis_view

    chance = random.Random(seed)
    texts = [path.read_bytes()[:60_000] for path in sorted(LOGS.glob("*.log"))]
    slowest, refused, causes = 0.0, 0, {}
    for number in range(count):
        text = mutate(chance, texts)
        started = time.perf_counter()
        try:
            found = explain(text)
            json.dumps(diagnosis_view(found))
            diagnosis_text(found)
            assert "\x1b" not in json.dumps(diagnosis_view(found), ensure_ascii=False)
            causes[found.cause] = causes.get(found.cause, 0) + 1
        except InputError:
            refused += 1
        except BaseException:
            Path(tempfile.gettempdir(), "legroom_fuzz_failure.log").write_bytes(text)
            say(f"mutation {number} of seed {seed} failed; it is in legroom_fuzz_failure.log")
            raise
        slowest = max(slowest, time.perf_counter() - started)
        if number % 10_000 == 9_999:
            say(f"{number + 1} logs, slowest {slowest:.3f} s", flush=True)
    assert slowest < SLOWEST_SECONDS, slowest
    return slowest, refused, causes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs", action="store_true", help="measure the large logs")
    parser.add_argument("--fuzz", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", type=int, default=1000, help="megabytes of each large log")
    chosen = parser.parse_args()
    if chosen.logs:
        with tempfile.TemporaryDirectory() as folder:
            for name, path in large_logs(Path(folder), chosen.size):
                seconds, peak, cause = measure(path)
                print(
                    f"{name}: {path.stat().st_size / 1e6:.0f} MB in {seconds:.1f} s, {peak:.0f} MB of RSS: {cause}",
                    flush=True,
                )
    if chosen.fuzz:
        started = time.perf_counter()
        slowest, refused, causes = fuzz(chosen.fuzz, chosen.seed)
        print(
            f"{chosen.fuzz} mutated logs in {time.perf_counter() - started:.0f} s: none raised, slowest {slowest:.3f} s, {refused} refused as no text, {causes}"
        )


if __name__ == "__main__":
    main()
