"""Several views of one step, on a made-up source that remembers what it was asked."""

import threading

from legroom.front.sharing import MOST_KEPT, Shared, View
from legroom.records.alternative import Alternative
from legroom.records.plan import Action

SLICED = (Action("microbatch", (("count", 2),)),)
IN_RAM = (Action("host_data"),)


class Source:
    """Traces are named after what was done to the step when they were made."""

    is_elsewhere = True

    def __init__(self):
        self.step, self.now, self.traced = "plain", (), []
        self.asking = threading.Lock()

    def change(self, actions):
        self.now, self.step = tuple(actions), f"changed by {len(actions)}"
        return "exact", ()

    def imagine(self, alternative):
        self.now = alternative

    def lower(self, batch, capability):
        assert self.asking.acquire(blocking=False), "two at a time"
        self.traced.append((self.now, batch))
        self.asking.release()
        return self.now, batch


def test_each_view_sees_its_own_actions():
    source = Source()
    one = View(Shared(source))
    two = one.beside()
    one.change(SLICED)
    assert two.lower(8, (8, 0)) == ((), 8)
    assert one.lower(8, (8, 0)) == (SLICED, 8)
    assert (one.step, two.step) == ("changed by 1", "changed by 0")


def test_what_changes_nothing_of_the_trace_traces_nothing():
    source = Source()
    view = View(Shared(source))
    plain = view.lower(8, (8, 0))
    view.change(IN_RAM)
    assert view.lower(8, (8, 0)) == plain
    view.change((*IN_RAM, *SLICED))
    assert view.lower(8, (8, 0)) != plain
    assert [batch for _, batch in source.traced] == [8, 8]


def test_only_the_last_traces_are_kept():
    source = Source()
    view = View(Shared(source))
    for batch in (*range(MOST_KEPT + 1), 0):
        view.lower(batch, (8, 0))
    assert len(source.traced) == MOST_KEPT + 2


def test_another_view_finds_the_step_as_it_is_while_one_imagines_something():
    source = Source()
    one = View(Shared(source))
    two = one.beside()
    other = Alternative("width", "dense", (64,), "if it were narrower")
    one.imagine(other)
    assert two.lower(8, (8, 0)) == ((), 8)
    assert one.lower(8, (8, 0)) == (other, 8)


def test_views_of_two_threads_take_turns():
    source = Source()
    one = View(Shared(source))
    two = one.beside()
    one.change(SLICED)
    found = {}

    def ask(name, view):
        found[name] = [view.lower(batch, (8, 0))[0] for batch in range(200)]

    threads = [threading.Thread(target=ask, args=pair) for pair in (("one", one), ("two", two))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"one": [SLICED] * 200, "two": [()] * 200}
