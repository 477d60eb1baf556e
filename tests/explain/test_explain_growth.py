"""Sizes that a run prints while it goes on: those that grow, those that shrink, and those that only look like it."""

import pytest

import legroom

LEAK, UNKNOWN = "leak_or_growth", "unknown"
PRINTED = {
    "without a unit": ("GPU: current: {}, peak: 9.50 memory of step {}", [0.21, 0.26, 0.31, 0.37, 0.42], LEAK),
    "TensorFlow's own": ("{{'current': {}, 'peak': 99000000}}", [21000000, 26000000, 31000000, 37000000], LEAK),
    "in percent": ("memory usage: {}%", [31.5, 40.0, 52.5, 61.0, 77.5], LEAK),
    "psutil's": ("svmem(total=34000000000, percent=9.0, used={}, free=1)", [3100, 4000, 5250, 6100, 7750], LEAK),
    "under another unit": ("rss: {}", ["640 MB", "800 MB", "970 MB", "1.2 GB", "1.5 GB"], LEAK),
    "of RAM": ("RAM used: {} GB", [6.1, 7.4, 8.8, 10.9, 12.0], LEAK),
    "what is left": ("available RAM: {} GB", [28.0, 24.5, 19.0, 15.5, 11.0], LEAK),
    "what is left, and stays": ("available RAM: {} GB", [28.0, 27.9, 28.1, 27.9, 28.0], UNKNOWN),
    "what is left, and grows": ("free memory: {} MB", [1000, 2000, 3000, 4000, 5000], UNKNOWN),
    "a little, and evenly": ("rss now: {} MB", [2210, 2252, 2293, 2335, 2377], LEAK),
    "evenly, with rests": ("rss now: {} MB", [2210, 2210, 2252, 2253, 2293, 2293, 2335, 2377, 2377], LEAK),
    "a little, and less and less": ("rss now: {} MB", [2210, 2290, 2320, 2330, 2332], UNKNOWN),
    "evenly, and then no more": ("rss now: {} MB", [2210, 2252, 2293, 2335, 2377, *[2377] * 9], UNKNOWN),
    "too little": ("rss now: {} MB", [2210, 2214, 2218, 2222, 2226], UNKNOWN),
    "with commas": ("memory: {} MB", ["1,910.0", "1,955.5", "2,001.0", "2,046.5", "2,092.0"], LEAK),
    "settled": ("mem {} MB", [200, 6000, 6001, 6000, 6002, 6001], UNKNOWN),
    "a peak": ("max mem: {}", [1000, 1600, 2200, 2900, 3300], UNKNOWN),
    "a rate": ("copied into memory at {} MB/s", [10, 20, 30, 40, 50], UNKNOWN),
    "something else": ("memory 700 MB, current lr: {}", [0.001, 0.002, 0.003, 0.004, 0.005], UNKNOWN),
}


@pytest.mark.parametrize(("line", "sizes", "cause"), PRINTED.values(), ids=PRINTED)
def test_sizes_that_are_printed(line, sizes, cause):
    text = "".join(line.format(size, number) + "\n" for number, size in enumerate(sizes))
    assert legroom.explain(text).cause == cause


def test_the_number_of_an_epoch_is_no_size():
    text = "".join(f"Memory after epoch {number}: 812 MB\n" for number in range(1, 9))
    assert legroom.explain(text).cause == UNKNOWN


@pytest.mark.parametrize(("step", "cause"), [(500, LEAK), (0, UNKNOWN)])
def test_each_of_several_devices_by_itself(step, cause):
    text = "".join(f"GPU {card} memory: {900 + 4000 * card + step * n} MB\n" for n in range(6) for card in (0, 1))
    assert legroom.explain(text).cause == cause


def test_it_is_said_as_it_was_printed():
    text = "".join(f"memory in use: {size}\n" for size in ("0.21", "0.26", "0.31", "0.42"))
    assert "grew from 0.21 to 0.42" in legroom.explain(text).why


def test_what_is_left_is_said_to_fall():
    text = "".join(f"free memory: {size} GB\n" for size in (9, 7, 5, 3))
    assert "fell from 9 GB to 3 GB" in legroom.explain(text).why


BEFORE_AND_AFTER = {
    "before and after in one": ([(700, 731), (731, 760), (760, 792), (792, 822)], LEAK),
    "taken and given back": ([(700, 990), (700, 990), (700, 990), (700, 990)], UNKNOWN),
}


@pytest.mark.parametrize(("pairs", "cause"), BEFORE_AND_AFTER.values(), ids=BEFORE_AND_AFTER)
def test_sizes_before_and_after_something(pairs, cause):
    text = "".join(f"before memory: {before} MB\nafter memory: {after} MB\n" for before, after in pairs)
    assert legroom.explain(text).cause == cause


FAILED = "RuntimeError: CUDA out of memory. Tried to allocate 48.00 MiB"
WAY = 'Traceback (most recent call last):\n  File "run.py", line 70, in main\n    {}\n'
EPOCHS = {
    "a bar over epochs": ("Epochs:  10%|█  | 1/10 [21:09<3:10:21, 1269.0s/it]", "", LEAK),
    "a bar whose title counts as it does": ("Epoch ... (1/30):   3%|▎  | 1/30 [2:09:11<62:26:19, 7751.0s/it]", "", LEAK),
    "the next step": ("Epochs:  10%|█  | 1/10 [21:09<3:10:21, 1269.0s/it]", WAY.format("state = train_step(state)"), LEAK),
    "none has ended": ("Epochs:   0%|   | 0/10 [00:00<?, ?it/s]", "", "batch_or_activations"),
    "a bar over the first epoch's steps": ("Epoch [1/30]:   1%|   | 1/410 [00:02<14:00, 2.05s/it]", "", "batch_or_activations"),
    "an evaluation": ("Epochs:  10%|█  | 1/10 [21:09<3:10:21, 1269.0s/it]", WAY.format("seen = p_eval_step(params, part)"), "batch_or_activations"),
}  # fmt: skip


@pytest.mark.parametrize(("bar", "way", "cause"), EPOCHS.values(), ids=EPOCHS)
def test_a_whole_epoch_had_gone_well(bar, way, cause):
    assert legroom.explain(f"{bar}\n{way}{FAILED}\n").cause == cause


def test_steps_as_flax_prints_them():
    text = f"Step... (4500 | Loss: 2.91, Learning Rate: 0.001)\n{FAILED}\n"
    assert legroom.explain(text).cause == LEAK


def test_epochs_as_flax_prints_them():
    text = f"Epoch... (3/30 | Loss: 2.91, Learning Rate: 0.001)\n{FAILED}\n"
    assert legroom.explain(text).cause == LEAK
