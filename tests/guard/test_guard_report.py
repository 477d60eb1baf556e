"""What the guard says, and its record as JSON."""

from legroom.records.run import Event, Way, event_from_json, event_to_json
from legroom.report.guard import event_line, refusal, way_text

FAILED = Event(
    *("changed", "gradients", 7, 1, 64, Way(4)),
    asked_bytes=4 << 20,
    in_use_bytes=90 << 20,
    free_bytes=3 << 20,
    op="dense/Relu",
)


def test_a_change_is_one_line():
    assert event_line(FAILED).plain == (
        "legroom: step 7 ran out of memory in the forward or backward pass (dense/Relu asked for 4.0 MiB beside what it "
        "held; the whole step has 3.0 MiB); nothing of it was kept. The same batch is taken again in 4 micro-batches of 16, and so are all that follow."
    )


def test_evaluation_is_named():
    event = Event("changed", "evaluation", batch=32, way=Way(2))
    assert event_line(event).plain.startswith("legroom: memory ran out in evaluate(); nothing of it was kept.")


def test_a_refusal_says_how_much_it_would_need():
    message, hint = refusal(FAILED, ("Because.",))
    assert "it needs more than 94.0 MiB in all" in message
    assert hint.splitlines()[0] == "Because."


def test_ways_in_words():
    assert way_text(Way()) == "as it is"
    assert way_text(Way(3, True), 10) == "with recomputed layers in 3 micro-batches of 4"


def test_an_event_survives_json():
    assert event_from_json(event_to_json(FAILED)) == FAILED
