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

from legroom.changes.microbatch import split
from legroom.engines.op.grappler import Device, optimise
from legroom.engines.op.jumps import read_order

CPU = Device(cores=2)


def network():
    inputs = keras.Input((16, 16, 3))
    x = keras.layers.Conv2D(8, 3, padding="same", activation="relu")(inputs)
    x = x + keras.layers.Conv2D(8, 3, padding="same", activation="relu")(x)
    return keras.Model(inputs, keras.layers.Dense(4)(keras.layers.GlobalAveragePooling2D()(x)))


def named():
    """Its variables' updates are named after what the function returns (`identity`) and before what is not the runtime's own name for that."""
    inputs = keras.Input((16, 16, 3))
    x = keras.layers.Conv2D(8, 3, padding="same", use_bias=False)(inputs)
    x = keras.layers.ReLU()(keras.layers.BatchNormalization()(x))
    x = keras.layers.BatchNormalization()(x + keras.layers.Conv2D(8, 3, padding="same", activation="relu")(x))
    return keras.Model(inputs, keras.layers.Dense(4)(keras.layers.GlobalAveragePooling2D()(x)), name="network")


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


def in_slices(model):
    """The step in two micro-batches, and what it is given."""
    model.compile("adam", "mse", jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    split(model, 2)
    arguments = tf.random.normal((4, *model.input_shape[1:])), tf.random.normal((4, 4))
    step = tf.function(lambda x, y: model.train_step((x, y)))
    return step.get_concrete_function(*arguments), arguments


def numbered(name):
    """Without the numbers that the runtime counts the loop's own nodes by."""
    return re.sub(r"/_\d+", "/_", name)


def main():
    found = {}
    for name, model in (("whole", network()), ("named", named())):
        concrete, arguments = step_of(model)
        graphs = ran(concrete, arguments), imported_names(optimise(concrete, CPU))
        found[name] = [[alike(node) for node in nodes] for nodes in graphs]
    for name, model, made in (("recurrent", recurrent(), step_of), ("micro-batches", network(), in_slices)):
        step = made(model)
        real, ours = ran(*step), read_order(optimise(step[0], CPU, keep_loops=False))
        found[name] = [[numbered(node) for node in nodes if "/body/_" in node] for nodes in (real, ours)]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
