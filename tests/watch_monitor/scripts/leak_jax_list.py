"""leaks: collected. A JAX loop that keeps every step's gradients in an attribute."""

from leak_verdict import STEPS, tell  # isort: skip
import jax
import jax.numpy as jnp

import legroom


class Trainer:
    def __init__(self):
        self.weights = jnp.ones((128, 128))
        self.gradients = []

    def step(self, x):
        gradient = slope(self.weights, x)
        self.weights = self.weights - 0.01 * gradient
        self.gradients.append(gradient)


slope = jax.jit(jax.grad(lambda weights, x: jnp.mean(jnp.tanh(x @ weights) ** 2)))
trainer = Trainer()
with legroom.Watch() as watch:
    for _ in range(STEPS):
        trainer.step(jnp.ones((8, 128)))
        watch.step()
        if watch.leak:
            break
tell(watch)
