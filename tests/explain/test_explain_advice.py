"""What is advised: reckoned for this very error, and with a page behind each cause."""

from pathlib import Path

import pytest

import legroom
from legroom.explain.batches import smaller_batch
from legroom.explain.checked import verified_advice
from legroom.records.diagnosis import CAUSES, Advice, Diagnosis, Pool
from legroom.records.plan import Action, Plan, Planning
from legroom.report.diagnosis_pool import by_class

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "tests" / "data" / "logs"
MIB = 1024**2


def explained(name):
    return legroom.explain((LOGS / name).read_bytes())


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_has_its_page(cause):
    assert f"`{cause}`" in (ROOT / "docs" / "causes" / f"{cause}.md").read_text()
    assert f"causes/{cause}.md" in (ROOT / "docs" / "explain.md").read_text()


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")), ids=lambda path: path.name)
def test_advice_says_what_why_and_how(path):
    found = legroom.explain(path.read_bytes())
    for advice in found.advice:
        assert advice.title
        assert advice.how
        assert (ROOT / advice.why.rsplit("See ", 1)[1]).exists()
        assert advice.saves_bytes is None or advice.saves_bytes >= 0
    assert len({advice.title for advice in found.advice}) == len(found.advice)
    if found.cause != "unknown":
        assert found.advice


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("torn_gpu.log", "TF_GPU_ALLOCATOR=cuda_malloc_async"),
        ("killed_images.log", "ds.shuffle(1000).batch(32)"),
        ("cudnn_handle.log", "set_memory_growth"),
        ("fit_batch.log", "batch_size="),
        ("torch_torn.log", "expandable_segments"),
        ("retraced.log", "reduce_retracing"),
    ],
)
def test_the_first_advice_is_for_this_error(log, words):
    assert words in explained(log).advice[0].how


def test_the_batch_that_fits_is_reckoned_from_what_grows_with_it():
    """Ten activations of 64 MiB and 100 MiB of weights in 760 MiB: with the one that was asked for, 704 MiB grow with the batch."""
    pool = Pool(760 * MIB, 740 * MIB, 760 * MIB, held=((64 * MIB, 10), (100 * MIB + 12345, 1)))
    found = Diagnosis(
        "batch_or_activations",
        failed_bytes=64 * MIB,
        tensor_shape=(128, 512, 256),
        limit_bytes=760 * MIB,
        in_use_bytes=740 * MIB,
        pool=pool,
    )
    batch = smaller_batch(found)
    assert batch.smaller == 120
    assert 100 * MIB + 704 * MIB * batch.smaller // 128 <= 760 * MIB
    assert batch.saves_bytes == 704 * MIB - 704 * MIB * 120 // 128


@pytest.mark.parametrize("shape", [None, (), (64,), (1, 8, 8), (3, 3, 512, 512), (0, 4)])
def test_no_batch_is_made_up(shape):
    assert smaller_batch(Diagnosis("unknown", failed_bytes=4096, tensor_shape=shape)) is None


def test_a_picture_counts_every_piece_once():
    found = explained("fit_batch.log")
    assert sum(size for _, _, size, _ in by_class(found.pool)) == found.in_use_bytes
    assert sum(count for *_, count in by_class(found.pool)) == sum(count for _, count in found.pool.held)


def planning(best):
    unchanged = Plan((), 900 * MIB, 900 * MIB, 950 * MIB, False, 1.0)
    plans = (best,) if best else ()
    return Planning("this CPU", 256, 500 * MIB, unchanged, plans, 0 if best else None, max_batch=64)


def test_advice_that_was_put_to_the_test_comes_first():
    guessed = (Advice("Or a batch", "", "model.fit(..., batch_size=96)"), Advice("Other", "", "nvidia-smi"))
    best = Plan((Action("microbatch", (("count", 4),)),), 400 * MIB, 390 * MIB, 420 * MIB, True, 1.1)
    found = verified_advice(guessed, planning(best), "train.py --budget 1")
    assert [advice.title for advice in found] == [
        "Apply the plan: microbatch",
        "Train with a batch of at most 64",
        "Other",
    ]
    assert found[0].saves_bytes == 500 * MIB
    assert "legroom plan train.py --budget 1 --json" in found[0].how
    nothing = verified_advice(guessed, planning(None), "train.py")
    assert "more memory" in nothing[-2].title
