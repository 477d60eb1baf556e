"""Data that does not fit into the host's RAM, by what a run says it does, by its bars, and by the code that it failed in."""

import pytest

import legroom

DATA, OTHER, UNKNOWN, BATCH = "host_ram_dataset", "host_ram_other", "unknown", "batch_or_activations"
BAR = "  61%|██████    | 36600/60000 [02:31<01:37, 241.0it/s]"
TITLES = {
    "Processing:": DATA,
    "Loading images:": DATA,
    "Tokenizing": DATA,
    "Converting examples to features:": DATA,
    "Map (num_proc=4):": DATA,
    "val: Caching labels (12.5GB ram):": DATA,
    "Loading training data:": DATA,
    "Training:": OTHER,
    "Training images:": OTHER,
    "Loading model weights:": OTHER,
    "": OTHER,
}


@pytest.mark.parametrize(("title", "cause"), TITLES.items(), ids=TITLES)
def test_a_bar_over_many_samples_says_by_its_title_what_was_done(title, cause):
    assert legroom.explain(f"{title}{BAR}\nKilled\n").cause == cause


ENDS = {
    "the line above is the bar's title": (f"Processing...\n{BAR}\nKilled", DATA),
    "a bar that rewrites itself": ("Reading files:   1%| | 90/9000 [00:01<]\rReading files:  91%| | 8190/9000 [03:00<]Killed", DATA),
    "samples without a total": ("Generating train split: 870000 examples [00:21, 41000.5 examples/s]\nKilled", DATA),
    "a bar of another library": ("Resizing images ━━━━━━━━━ 40% 4000/10000 0:00:09\nKilled", DATA),
    "a count": ("Parsing record 51000/70000\nexited with code 137", DATA),
    "a line": ("Loading dataset...\nKilled", DATA),
    "a line, then bad_alloc": ("Reading the training set\nterminate called after std::bad_alloc", DATA),
    "a loss in the bar": ("Processing: 61%|████ | 6100/9999 [02:31<01:37, 24.0it/s, loss=0.9]\nKilled", OTHER),
    "few steps": ("Loading parts:  33%|███ | 1/3 [00:10<00:20, 10.1s/it]\nKilled", OTHER),
    "a model after the data": ("Loading dataset...\nBuilding the network...\nKilled", OTHER),
    "training after the data": ("Loading dataset...\nStart training\nKilled", OTHER),
    "an epoch after the data": ("Loading dataset...\nEpoch 1/9\nKilled", OTHER),
    "much after the data": ("Loading dataset...\na\nb\nc\nd\nKilled", OTHER),
    "counted of a total": ("Read the 7000 scan of 8800 files.\nKilled", DATA),
    "counted, without a verb": ("image 5200 of 6100\nKilled", DATA),
    "a few files of several": ("File 31/96 loaded\nKilled", DATA),
    "counted on": ("Added 4000 records\nAdded 8000 records\nAdded 12000 records\nKilled", DATA),
    "counted once": ("Added 4000 records\nKilled", OTHER),
    "counted to the end": ("Loaded 8800 of 8800 images\nKilled", OTHER),
    "the training set, counted": ("Loaded 2600 of 8800 train images\nKilled", DATA),
    "counted in training": ("Processed 2600/8800 images, loss 0.41\nKilled", OTHER),
    "counted frames of a game": ("Frame 26000/900000 reward 1.5\nKilled", OTHER),
    "counted downloads": ("Downloaded 2600 of 8800 files\nKilled", OTHER),
    "counted layers": ("Loaded 7 of 24 layers\nKilled", OTHER),
    "a replay buffer": ("Creating the replay buffer\nKilled", DATA),
    "a replay memory that is filled": ("Filling replay memory: 21000/80000\nKilled", DATA),
    "no end": (f"Loading images:{BAR}\ndone", UNKNOWN),
    "a device after the data": (f"Tokenizing:{BAR}\nRuntimeError: CUDA out of memory. Tried to allocate 30.00 MiB", BATCH),
}  # fmt: skip


@pytest.mark.parametrize(("text", "cause"), ENDS.values(), ids=ENDS)
def test_what_was_done_before_the_end(text, cause):
    assert legroom.explain(text + "\n").cause == cause


CODE = {
    "X_all = np.append(X_all, part, axis=0)": DATA,
    "val_images = np.zeros((count, 300, 300, 3))": DATA,
    "merged = np.hstack([features, more])": DATA,
    "table = pd.concat(parts)": DATA,
    "both = left.merge(right, on='key')": DATA,
    "wide = ratings.pivot_table(index='a', columns='b')": DATA,
    "frame = pd.read_parquet(path)": DATA,
    "dense = TfidfVectorizer().fit_transform(posts).toarray()": DATA,
    "codes = OneHotEncoder(sparse=False).fit_transform(column)": DATA,
    "self.replay = ReplayBuffer(int(2e6))": DATA,
    "self._pool[name] = np.empty((capacity, *shape))": DATA,
    "self.seen = numpy.zeros([self.mem_size, 96, 96, 4], numpy.uint8)": DATA,
    "product = np.dot(a, b.T)": OTHER,
    "inverse = np.linalg.inv(covariance)": OTHER,
    "kernel = rbf(points, points)": OTHER,
}


@pytest.mark.parametrize(("code", "cause"), CODE.items(), ids=CODE)
def test_the_line_of_code_that_failed(code, cause):
    text = f'Traceback (most recent call last):\n  File "work.py", line 31, in main\n    {code}\nMemoryError\n'
    assert legroom.explain(text).cause == cause


LIBRARIES = {
    "/usr/lib/python3/dist-packages/pandas/core/reshape/reshape.py": DATA,
    "C:\\env\\Lib\\site-packages\\sklearn\\preprocessing\\_encoders.py": DATA,
    "/home/ann/agents/replay_buffer/ring.py": DATA,
    "/usr/lib/python3/dist-packages/sklearn/metrics/pairwise.py": OTHER,
    "/home/ann/datasets/solve.py": OTHER,
}


@pytest.mark.parametrize(("file", "cause"), LIBRARIES.items())
@pytest.mark.parametrize("frame", ['  File "{}", line 7, in work', "{} in work(a, b)"])
def test_the_library_that_it_failed_in(file, cause, frame):
    text = f"Traceback (most recent call last)\n{frame.format(file)}\n    some(code)\nMemoryError: Unable to allocate 7.00 GiB for an array with shape (43347, 43347) and data type float32\n"
    assert legroom.explain(text).cause == cause


def test_an_array_that_no_machine_holds_is_too_large_whatever_made_it():
    text = '  File "work.py", line 31, in main\n    codes = pd.get_dummies(column)\nMemoryError: Unable to allocate 900. GiB for an array with shape (983040, 983040) and data type uint8\n'
    assert legroom.explain(text).cause == "tensor_too_large"


def test_several_spaces_in_a_frame():
    text = 'Traceback (most recent call last):\n File "work.py", line 8, in   load_data\nMemoryError\n'
    assert legroom.explain(text).cause == DATA


SHUFFLE = "I shuffle_dataset_op.cc:390] Filling up shuffle buffer (this may take a while): {} of 7000\n"


def test_a_shuffle_buffer_that_was_filled_is_no_error():
    text = SHUFFLE.format(3100) + "I shuffle_dataset_op.cc:415] Shuffle buffer filled.\n"
    assert legroom.explain(text).cause == "not_an_error"


def test_a_shuffle_buffer_is_not_what_another_error_was_about():
    text = SHUFFLE.format(3100) + 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: bad shape\n'
    assert legroom.explain(text).cause == UNKNOWN


def test_a_replay_buffer_is_not_what_a_device_lacks():
    text = "batch = replay_buffer.sample(64)\nRuntimeError: CUDA out of memory. Tried to allocate 30.00 MiB\n"
    assert legroom.explain(text).cause == BATCH
