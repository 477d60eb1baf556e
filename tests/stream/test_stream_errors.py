"""Bad input: what is wrong is said, with the sample's name, and no part of a batch is handed over."""

import os

import numpy as np
import pytest
from made_sources import COUNT, X, Y, records

import legroom
from legroom.errors import InputError


@pytest.mark.parametrize(
    ("source", "arguments", "message"),
    [
        ((X, Y[:-1]), {}, "differ in length"),
        ([], {}, "empty"),
        ((X[:0], Y[:0]), {}, "empty"),
        ((), {}, "empty"),
        (iter([]), {}, "no samples"),
        (3, {}, "no samples in int"),
        ("nowhere/x.npy", {}, "There is no nowhere/x.npy"),
        ((X, Y), {"ram": "100"}, "One sample takes"),
        ((X, Y), {"ram": "8KiB", "batch_size": 128}, "A batch of 128"),
        ((X, Y), {"batch_size": 0}, "batch_size=0"),
        ((X, Y), {"batch_size": 300, "drop_last": True}, "less than one batch"),
        ([np.zeros(3), np.zeros((3, 3))], {}, "Samples differ"),
        (lambda: 3, {}, "returned int"),
    ],
)
def test_refused(source, arguments, message):
    with pytest.raises(InputError, match=message) as caught:
        legroom.stream(source, verbose=False, **arguments)
    assert caught.value.hint


def test_a_file_that_is_cut_off(tmp_path):
    np.save(tmp_path / "x.npy", X)
    whole = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(whole[:-10])
    with pytest.raises(InputError, match="cut off"):
        legroom.stream(tmp_path / "x.npy", verbose=False)
    (tmp_path / "x.npy").write_bytes(b"no array")
    with pytest.raises(InputError, match=r"no readable \.npy"):
        legroom.stream(tmp_path / "x.npy", verbose=False)


def test_a_file_that_shrinks_in_the_middle_of_an_epoch(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((2000, 1000), np.float32))
    stream = legroom.stream(tmp_path / "x.npy", batch_size=8, ram="512KiB", shuffle=False, threads=1, verbose=False)
    running, seen = iter(stream), []
    seen.append(next(running).copy())
    os.truncate(tmp_path / "x.npy", 128 + 1000 * 4000)
    with pytest.raises(InputError, match=r"Sample 1000 of .*x\.npy is not there any more"):
        seen.extend(batch.copy() for batch in running)
    assert all(len(batch) == 8 for batch in seen)
    assert stream.state()["samples"] == 8 * len(seen) <= 1000


def test_a_file_that_vanishes_is_still_read(tmp_path):
    np.save(tmp_path / "x.npy", X)
    stream = legroom.stream(tmp_path / "x.npy", batch_size=8, ram="64KiB", verbose=False)
    (tmp_path / "x.npy").unlink()
    assert sum(len(batch) for batch in stream) == COUNT


def test_a_corrupt_record_is_named(tmp_path):
    records(tmp_path)
    data = bytearray((tmp_path / "0.tfrecord").read_bytes())
    data[len(data) // 2 + 600] ^= 1
    (tmp_path / "0.tfrecord").write_bytes(data)
    stream = legroom.stream(str(tmp_path / "*.tfrecord"), batch_size=4, shuffle=False, verbose=False)
    with pytest.raises(InputError, match=r"Sample \d+ \(record \d+ of .*0\.tfrecord\) could not be read"):
        list(stream)


def test_an_image_that_is_gone(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for number in range(9):
        image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / f"{number}.png")
    stream = legroom.stream(tmp_path, batch_size=3, verbose=False)
    (tmp_path / "5.png").unlink()
    with pytest.raises(InputError, match=r"5\.png"):
        list(stream)


def test_a_sample_that_fails_and_one_that_is_made_otherwise():
    class Bad:
        def __init__(self, bad):
            self.bad = bad

        def __len__(self):
            return 50

        def __getitem__(self, index):
            if index == 33:
                return self.bad()
            return np.zeros(3), index

    with pytest.raises(InputError, match="Sample 33 of the Bad could not be read: ZeroDivisionError"):
        list(legroom.stream(Bad(lambda: 1 // 0), batch_size=4, verbose=False))
    with pytest.raises(InputError, match="made otherwise"):
        list(legroom.stream(Bad(lambda: np.zeros(3)), batch_size=4, verbose=False))


def test_generators_that_end_early_or_cannot_start_again():
    with pytest.raises(InputError, match="ended after 10 of the 20"):
        list(legroom.stream(lambda: iter(X[:10]), batch_size=4, samples=20, verbose=False))
    once = legroom.stream(iter(X[:10]), batch_size=4, verbose=False)
    assert sum(len(batch) for batch in once) == 10
    with pytest.raises(InputError, match="used up"):
        list(once)


def test_a_batch_that_outgrows_the_budget_is_refused():
    def samples():
        yield from (np.zeros(10 if i != 33 else 10**6) for i in range(60))

    with pytest.raises(InputError, match="padded to its longest"):
        list(legroom.stream(list(samples()), batch_size=4, ram="1MiB", shuffle=False, ragged=True, verbose=False))
    with pytest.raises(InputError, match=r"the longest is of shape \(1000000,\)") as caught:
        list(legroom.stream(list(samples()), batch_size=4, ram="1MiB", shuffle=False, verbose=False))
    assert "ragged=True" in caught.value.hint


def test_no_room_for_a_scratch_file(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=X)
    with pytest.raises(InputError, match="There is no folder"):
        legroom.stream(tmp_path / "a.npz", ram="256KiB", batch_size=4, scratch=tmp_path / "nowhere", verbose=False)
