"""Prints, as JSON, the names of the nodes that TensorFlow ran and of those that Legroom lays out, for a small network and a loop.

A process of its own: oneDNN, which gives nodes other names, is off or on for all of a process.
"""

import json
import re
import sys

import keras
import tensorflow as tf
from flat_graphs import imported_names
from tensorflow.python.eager import context

from legroom.engines.op.grappler import Device, optimise
from legroom.engines.op.loop_order import loop_order

CPU = Device(cores=2)


def network():
    inputs = keras.Input((16, 16, 3))
    x = keras.layers.Conv2D(8, 3, padding="same", activation="relu")(inputs)
    x = x + keras.layers.Conv2D(8, 3, padding="same", activation="relu")(x)
    return keras.Model(inputs, keras.layers.Dense(4)(keras.layers.GlobalAveragePooling2D()(x)))


def recurrent():
    inputs = keras.Input((6, 5))
    return keras.Model(inputs, keras.layers.Dense(4)(keras.layers.LSTM(7)(inputs)))


def step_of(model):
    model.compile("adam", "mse", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    step = tf.function(lambda x, y: model.train_step((x, y)))
    arguments = tf.random.normal((2, *model.input_shape[1:])), tf.random.normal((2, 4))
    return step.get_concrete_function(*arguments), arguments


def ran(concrete, arguments):
    """The names of the nodes of the graph that TensorFlow ran, in its order."""
    context.enable_run_metadata()
    concrete(*arguments)
    found = context.export_run_metadata()
    context.disable_run_metadata()
    graphs = [graph for function in found.function_graphs for graph in function.partition_graphs]
    return [node.name for node in max(graphs, key=lambda graph: len(graph.node)).node]


def alike(name):
    """The runtime spells a parameter's name in its own way."""
    return name.lower().replace("/", "_")


def main():
    concrete, arguments = step_of(network())
    whole = [
        [alike(name) for name in names] for names in (ran(concrete, arguments), imported_names(optimise(concrete, CPU)))
    ]
    concrete, arguments = step_of(recurrent())
    matches = (re.fullmatch(r"(.+?_grad)/body/_\d+/(.+)", name) for name in ran(concrete, arguments))
    real = [(found[1], found[2]) for found in matches if found is not None]
    ours = loop_order(optimise(concrete, CPU, keep_loops=False))[real[0][0]]
    body = [[name for _, name in real], sorted(ours, key=ours.__getitem__)]
    json.dump({"whole": whole, "body": body}, sys.stdout)


if __name__ == "__main__":
    main()
