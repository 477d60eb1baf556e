"""Batches read by threads before they are asked for, handed over in order, never more than so many of them."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Full, Queue
from typing import Any

DONE = object()


def in_order(read: Callable[[int], Any], count: int, threads: int, ahead: int) -> Iterator[Any]:
    """`read(0)`, `read(1)` … up to `count`; an error comes up where its batch would have been."""
    if ahead == 0:
        yield from (read(number) for number in range(count))
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="legroom-data")
    waiting: deque[Future[Any]] = deque()
    asked = 0
    try:
        while waiting or asked < count:
            while len(waiting) < ahead + threads and asked < count:
                waiting.append(pool.submit(read, asked))
                asked += 1
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def one_after_another(batches: Iterator[Any], ahead: int) -> Iterator[Any]:
    """The same for what has no index: one thread runs the iterator, up to `ahead` before the reader."""
    if ahead == 0:
        yield from batches
        return
    queue: Queue[Any] = Queue(ahead)
    stop = threading.Event()

    def put(item: Any) -> None:
        while not stop.is_set():
            with suppress(Full):
                queue.put(item, timeout=0.2)
                return

    def fill() -> None:
        end: Any = DONE
        try:
            for batch in batches:
                put(batch)
                if stop.is_set():
                    return
        except BaseException as error:  # noqa: BLE001 - handed over to the reader, who raises it
            end = error
        put(end)

    thread = threading.Thread(target=fill, name="legroom-data", daemon=True)
    thread.start()
    try:
        while (item := queue.get()) is not DONE:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
