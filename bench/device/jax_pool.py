"""Whether JAX works with nearly all of a card in its pool: fills it, then multiplies and convolves. On a machine with a GPU.

XLA_PYTHON_CLIENT_MEM_FRACTION=0.92 python bench/device/jax_pool.py
"""

import json
import os

import jax
import jax.numpy as jnp

SHARE = 0.9  # of the pool that is filled before anything is computed


def main() -> None:
    device = jax.devices()[0]
    limit = device.memory_stats()["bytes_limit"]
    held = jnp.zeros((int(limit * SHARE) // 2**20, 2**20), jnp.uint8).block_until_ready()
    a = jnp.ones((4096, 4096), jnp.float32)
    product = float((a @ a)[0, 0])
    images, filters = jnp.ones((32, 64, 64, 64)), jnp.ones((3, 3, 64, 64))
    layout = ("NHWC", "HWIO", "NHWC")
    convolved = float(
        jax.lax.conv_general_dilated(images, filters, (1, 1), "SAME", dimension_numbers=layout)[0, 9, 9, 0]
    )
    found = {
        "fraction": os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION"),
        "limit_bytes": limit,
        "held_bytes": held.nbytes,
    }
    print(json.dumps(found | {"product": product, "convolved": convolved, "device": device.device_kind}))


if __name__ == "__main__":
    main()
