"""Every kind of source gives every sample once, whole, in the order that was asked for."""

import numpy as np
import pytest
from made_sources import COUNT, KINDS, X, Y, make

import legroom
from legroom.data.sources import options as opening


def taken(stream):
    """The labels in their order, each sample checked against its label."""
    labels = []
    for batch in stream:
        x, y = (batch["x"], batch["y"]) if isinstance(batch, dict) else batch
        assert np.array_equal(np.asarray(x, float).reshape(len(x), -1), np.repeat(y[:, None], 30, axis=1))
        assert x.dtype == np.float32
        labels.append(np.array(y))
    return np.concatenate(labels)


@pytest.mark.parametrize("small_held", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_once(kind, small_held, tmp_path, monkeypatch):
    if not small_held:
        monkeypatch.setattr(opening, "SMALL_SHARE", 10**9)
    source, arguments = make(kind, tmp_path)
    stream = legroom.stream(source, batch_size=16, ram="2MiB", verbose=False, **arguments)
    first, second = taken(stream), taken(stream)
    assert sorted(first) == sorted(second) == list(range(COUNT))
    assert first.tolist() != second.tolist()
    assert len(stream) == -(-COUNT // 16)
    again = legroom.stream(source, batch_size=7, ram="1MiB", threads=1, verbose=False, **arguments)
    assert taken(again).tolist() == first.tolist()
    assert (
        taken(legroom.stream(source, batch_size=16, shuffle=False, verbose=False, **arguments)).tolist() == Y.tolist()
    )


def test_arrays_are_not_copied():
    stream = legroom.stream((X, Y), batch_size=16, verbose=False)
    assert stream.source.columns[0].array is X


def test_uint8_stays_and_batches_are_their_own():
    stream = legroom.stream(X.astype(np.uint8), batch_size=16, ram="1MiB", verbose=False)
    kept = list(stream)
    assert kept[0].dtype == np.uint8
    assert sorted(int(row.flat[0]) for batch in kept for row in batch) == sorted(Y % 256)


def test_a_folder_of_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for label in range(3):
        (tmp_path / f"class{label}").mkdir()
        for number in range(5):
            made = np.full((20 + number, 30, 3), label * 50, np.uint8)
            image.fromarray(made).save(tmp_path / f"class{label}" / f"{number}.png")
    batches = list(legroom.stream(tmp_path, batch_size=4, image_size=(16, 12), verbose=False))
    assert sum(len(labels) for _, labels in batches) == 15
    for images, labels in batches:
        assert images.shape[1:] == (16, 12, 3)
        assert images.dtype == np.uint8
        assert (images == labels[:, None, None, None] * 50).all()


def test_ragged_values_are_padded_to_the_longest_of_their_batch():
    samples = [(np.full(1 + i % 9, i + 1), i) for i in range(100)]
    for values, labels in legroom.stream(samples, batch_size=8, verbose=False):
        lengths = (values != 0).sum(axis=1)
        assert values.shape[1] == lengths.max()
        assert (lengths == 1 + labels % 9).all()


def test_text_and_lists_of_a_parquet_file(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    made = arrow.table({"text": ["a" * i for i in range(20)], "ids": [[i] * (1 + i % 4) for i in range(20)]})
    parquet.write_table(made, tmp_path / "a.parquet")
    batch = next(iter(legroom.stream(tmp_path / "a.parquet", batch_size=4, shuffle=False, verbose=False)))
    assert batch["text"].tolist() == [b"", b"a", b"aa", b"aaa"]
    assert batch["ids"].tolist() == [[0, 0, 0, 0], [1, 1, 0, 0], [2, 2, 2, 0], [3, 3, 3, 3]]


def test_generators_come_in_their_own_order_and_again():
    def samples():
        yield from ((X[i], Y[i]) for i in range(COUNT))

    stream = legroom.stream(samples, batch_size=16, verbose=False)
    assert taken(stream).tolist() == taken(stream).tolist() == Y.tolist()
    endless = legroom.stream(lambda: iter(lambda: (X[0], Y[0]), None), batch_size=8, samples=40, verbose=False)
    assert len(endless) == 5
    assert len(list(endless)) == 5


def test_a_function_over_samples():
    stream = legroom.stream((X, Y), batch_size=16, transform=lambda s: (s[0][:2] * 2, s[1]), verbose=False)
    for x, y in stream:
        assert x.shape[1:] == (2, 5)
        assert (x[:, 0, 0] == 2 * y).all()


def test_what_it_says(capsys):
    legroom.stream((X, Y), batch_size=16, ram="1MiB")
    said = capsys.readouterr().err
    assert "203 samples of 128 B shuffled by index, in batches of 16 (2.0 KiB)" in said
    assert "of 1.0 MiB" in said
