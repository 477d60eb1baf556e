"""The search, on made-up cards: no compiler is asked here."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from legroom.errors import EngineError
from legroom.front.max_batch import MAX_COMPILATIONS, ceiling, find_max_batch
from legroom.records import Estimate, Failure


def made_up(batch, peak, limit, fixed=0):
    return Estimate(
        engine="xla", engine_version="", framework="jax", framework_version="", execution="xla", gpu="", batch=batch,
        peak_bytes=peak, low_bytes=peak, high_bytes=peak, program_bytes=peak, resident_bytes=0, usable_bytes=limit,
        breakdown={"weights": fixed}, layers=(),
    )  # fmt: skip


class Card:
    """Answers from a formula and remembers what it was asked."""

    def __init__(self, peak_of, limit, fixed=0):
        self.peak_of, self.limit, self.fixed, self.asked = peak_of, limit, fixed, {}

    def at(self, batch):
        assert batch >= 1
        assert batch not in self.asked, "asked twice"
        self.asked[batch] = made_up(batch, self.peak_of(batch), self.limit, self.fixed)
        return self.asked[batch]

    def search(self, start):
        return find_max_batch(self.at, self.at(start)).max_batch


@given(
    start=st.integers(1, 4096), fixed=st.integers(0, 10**9), slope=st.integers(1, 10**7), room=st.integers(10, 10**11),
    hidden=st.integers(0, 10**8),
)  # fmt: skip
@settings(max_examples=400)
def test_on_a_straight_line_it_ends_next_to_the_limit(start, fixed, slope, room, hidden):
    card = Card(lambda batch: fixed + hidden + slope * batch, fixed + hidden + room, fixed)
    found = card.search(start)
    fits = {batch for batch, estimate in card.asked.items() if estimate.fits}
    assert len(card.asked) <= 1 + MAX_COMPILATIONS
    assert found == max(fits, default=0)
    assert any(found < batch <= ceiling(found) for batch in card.asked if batch not in fits)


@given(
    start=st.integers(1, 4096), fixed=st.integers(0, 10**9), slope=st.integers(1, 10**7), room=st.integers(10, 10**11),
    hidden=st.integers(0, 10**8),
)  # fmt: skip
@settings(max_examples=400)
def test_in_a_hurry_it_is_right_on_a_straight_line_all_the_same(start, fixed, slope, room, hidden):
    card = Card(lambda batch: fixed + hidden + slope * batch, fixed + hidden + room, fixed)
    found = find_max_batch(card.at, card.at(start), quick=True).max_batch
    largest = room // slope
    assert found <= largest < ceiling(found)
    assert found == 0 or card.asked[found].fits


def test_in_a_hurry_two_points_of_a_line_are_enough():
    card = Card(lambda batch: 1000 + 10 * batch, 2000, 1000)
    assert find_max_batch(card.at, card.at(200), quick=True).max_batch == 100
    assert list(card.asked) == [200, 100]


def test_it_says_zero_when_not_even_one_example_fits():
    assert Card(lambda batch: 10**9 + batch, 10**8).search(64) == 0


def test_a_dip_in_the_curve_does_not_make_it_claim_what_was_not_compiled():
    peaks = {128: 775, 144: 728, 160: 729, 176: 714, 192: 778, 224: 908, 256: 1293}
    card = Card(lambda batch: peaks[min(peaks, key=lambda known: abs(known - batch))], 780)
    found = card.search(128)
    assert card.asked[found].fits
    assert len(card.asked) <= 1 + MAX_COMPILATIONS


def test_ceiling_is_one_percent_or_one_example():
    assert [ceiling(batch) for batch in (0, 1, 99, 100, 1000)] == [1, 2, 100, 102, 1011]


@given(
    start=st.integers(1, 1000), slope=st.integers(1000, 10**7), limit=st.integers(2, 2000),
    noise=st.lists(st.floats(-0.05, 0.05), min_size=64, max_size=64),
)  # fmt: skip
@settings(max_examples=300)
def test_where_the_peak_does_not_rise_it_claims_only_what_fitted_and_says_if_it_ran_out(start, slope, limit, noise):
    card = Card(lambda batch: int(slope * batch * (1 + noise[batch % 64])), slope * limit)
    found = find_max_batch(card.at, card.at(start))
    fits = {batch for batch, estimate in card.asked.items() if estimate.fits}
    assert found.max_batch == max(fits, default=0)
    settled = any(found.max_batch < batch <= ceiling(found.max_batch) for batch in card.asked if batch not in fits)
    assert settled or any("may fit" in note for note in found.notes)


def test_a_batch_that_cannot_be_compiled_ends_the_search_and_not_the_answer():
    def at(batch):
        raise EngineError("the compiler gave up")

    found = find_max_batch(at, made_up(8, 100, 1000))
    assert found.max_batch == 8
    assert "gave up" in found.notes[-1]


@given(start=st.integers(1, 4096), slope=st.integers(1000, 10**7), whole=st.integers(2, 5000), tear=st.floats(0.6, 1.0))
@settings(max_examples=300)
def test_room_in_pieces_is_searched_by_halves(start, slope, whole, tear):
    """The allocator finds no room from some batch on, though less is needed than there is."""
    largest = max(1, int(whole * tear))
    asked = {}

    def at(batch):
        assert batch not in asked, "asked twice"
        failed = Failure("a layer", 2, 3, 1, is_fragmentation=True) if batch > largest else None
        asked[batch] = replace(made_up(batch, slope * batch, slope * whole), out_of_memory=failed)
        return asked[batch]

    found = find_max_batch(at, at(start)).max_batch
    assert found <= largest <= ceiling(found)
