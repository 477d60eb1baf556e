"""tf.data pipelines: a budget for their autotuning, and words about what only their author may change."""

import pytest

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def elements():
    import tensorflow as tf

    return tf.data.Dataset.range(1000).map(lambda i: tf.fill([1000], tf.cast(i, tf.float32)))


def test_a_stream_of_a_dataset_is_the_dataset_with_a_budget(elements, capsys):
    import legroom

    stream = legroom.stream(elements, batch_size=10, ram="64MiB")
    assert stream.options().autotune.ram_budget == 64 * 2**20
    assert sum(len(batch) for batch in stream) == 1000
    assert legroom.stream(elements.batch(4), ram="64MiB").element_spec.shape.rank == 2
    assert capsys.readouterr().err == ""


def test_what_is_said(elements):
    from legroom.data.pipelines import costs

    batched = costs(elements.batch(8).shuffle(100), 2**30)
    assert len(batched) == 1
    assert "holds 100 batches, 3.1 MiB" in batched[0]
    large = costs(elements.shuffle(1000).batch(8), 2**20)
    assert "holds 4.0 MiB of a budget of 1.0 MiB" in large[0]
    assert "in RAM" in costs(elements.cache().batch(8), 2**20)[0]
    assert costs(elements.shuffle(100).batch(8).prefetch(2), 2**30) == []


def test_fit_gives_a_dataset_its_budget(elements, capsys):
    import keras
    import tensorflow as tf

    import legroom

    model = keras.Sequential([keras.Input((1000,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = elements.take(32).map(lambda x: (x, tf.zeros([1]))).batch(8).shuffle(2)
    legroom.fit(model, data, ram="64MiB", verbose=2)
    assert "shuffles batches" in capsys.readouterr().err
