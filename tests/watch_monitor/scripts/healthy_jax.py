"""healthy. A compiled JAX loop with two lengths of batches, and a list of numbers for the losses."""

from leak_verdict import STEPS, tell  # isort: skip
import jax
import jax.numpy as jnp

import legroom


@jax.jit
def train(weights, x):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(weights)
    return weights - 0.01 * gradient, loss


weights, losses = jnp.ones((256, 256)), []
with legroom.Watch() as watch:
    for step in range(STEPS):
        weights, loss = train(weights, jnp.ones((64 if step % 50 else 32, 256)))
        losses.append(float(loss))
        watch.step()
tell(watch)
