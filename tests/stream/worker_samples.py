"""What worker processes run: importable, as a user's own module is."""

import os
import signal
import time

import numpy as np


class Numbers:
    """Sample i is full of i. Some numbers do other things."""

    def __init__(self, count=100, kill=None, fail=None):
        self.count, self.kill, self.fail = count, kill, fail

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if index == self.kill and "LEGROOM_WORKER" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        if index == self.fail:
            raise ValueError("no such number")
        return np.full((4, 3), index, np.float32), index


def doubled(row):
    return row[0] * 2, row[1]


def bytes_first(record):
    return np.frombuffer(record, np.float32)[:1]


def slow(row):
    time.sleep(0.02)
    return row


def named(row):
    return f"number {int(row[1])}", row[0][: 1 + int(row[1]) % 3]


def process(row):
    return np.int64(os.getpid())
