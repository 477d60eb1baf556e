"""NumPy, JAX, C++ and the kernel that really run out of memory, one way for each name. `record.py` sets the limits."""

import sys


def numpy_images():
    import numpy as np

    x_train = np.zeros((60_000, 224, 224, 3))
    print(x_train.shape)


def numpy_stack():
    import numpy as np

    def load_images(count):
        images = [np.ones((256, 256, 3), "float32") for _ in range(count)]
        return np.stack(images).astype("float64")

    print(load_images(2000).shape)


def numpy_square():
    import numpy as np

    points = np.ones((120_000, 3))
    print((points @ points.T).shape)


def plain_memory_error():
    held = []
    while True:
        held.append(bytearray(64 * 1024 * 1024))


def bad_alloc():
    import ctypes

    new = ctypes.CDLL("libstdc++.so.6")._Znwm
    new.argtypes, new.restype = [ctypes.c_size_t], ctypes.c_void_p
    new(1 << 46)


def cannot_fork():
    import subprocess

    held = bytearray(1_500_000_000)
    for _ in range(400):
        held += bytearray(8_000_000)
        subprocess.run(["true"], check=True, preexec_fn=lambda: None)


def jax_array():
    import jax.numpy as jnp

    print(jnp.zeros((4_000_000, 1_000_000)).shape)


def jax_step():
    import jax
    import jax.numpy as jnp

    @jax.jit
    def train_step(x, kernel):
        hidden = jnp.sin(x @ kernel)
        return jnp.sum(hidden, axis=-1) + jnp.max(hidden, axis=-1)

    print(train_step(jnp.ones((200_000, 512)), jnp.ones((512, 16_384))).block_until_ready().shape)


def jax_pairs():
    import jax
    import jax.numpy as jnp

    @jax.jit
    def train_step(x):
        return jnp.sum(jnp.sin(x[:, None, :] * x[None, :, :]) @ jnp.ones((512, 4096)), axis=-1)

    print(train_step(jnp.ones((60_000, 512))).block_until_ready().shape)


def hold_until_killed():
    held = []
    while True:
        held.append(bytearray(b"x") * (32 * 1024 * 1024))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
