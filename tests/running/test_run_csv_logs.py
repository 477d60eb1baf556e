"""Rows of Keras' CSVLogger that stay when a training is resumed."""

import pytest

from legroom.running.csv_logs import keep_rows

HEAD = "epoch;loss\n"


@pytest.mark.parametrize(
    ("rows", "epoch", "kept"),
    [
        ("0;0.5\n1;0.4\n2;0.3\n", 2, "0;0.5\n1;0.4\n"),
        ("0;0.5\n1;0.4\n", 2, "0;0.5\n1;0.4\n"),
        ("0;0.5\n1;0.", 2, "0;0.5\n"),  # killed while it was written
        ("0;0.5\n", 0, ""),
        ("8;0.5\n0;0.4\n1;0.3\n", 1, "8;0.5\n0;0.4\n"),  # appended to an earlier training's
        ("", 3, ""),
    ],
)
def test_rows_from_the_resumed_epoch_on_are_taken_away(tmp_path, rows, epoch, kept):
    path = tmp_path / "rows.csv"
    path.write_text(HEAD + rows)
    keep_rows(path, ";", epoch)
    assert path.read_text() == HEAD + kept
