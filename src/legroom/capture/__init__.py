"""What is trained: from a model and a batch, from a script's first training call, from a `tf.function` train step."""
