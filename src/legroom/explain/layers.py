"""The Keras layer in the name of an operation, as TensorFlow and JAX write such names."""

import re

WRAPPED = re.compile(r"[A-Za-z_]\w{0,60}\(")
JITTED = re.compile(r"\bp?jit\([^()/]{0,80}\)")
NOT_LAYERS = """
gradient_tape gradients training model functional sequential while body cond then else kernel bias embeddings gamma beta loss metrics
convolution batchnorm moments strided_slice add mul sub truediv transpose concat split random_uniform zeros ones zeros_like read save
train update opt optimizer tower replica main remat checkpoint rematted_computation dot_general conv_general_dilated reduce_sum
keras_tensor random_normal truncated_normal recurrent_kernel moving_mean moving_variance mean variance squareddifference einsum softmax
"""
SCOPES = frozenset(NOT_LAYERS.split())
NUMBERED = re.compile(r"(\w{1,120}?)_\d{1,6}$")
LAYER_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,120}$")
OPTIMIZERS = re.compile(
    r"(?i)(?:^|/)(?:training/)?(?:adam|adamw|rmsprop|sgd|momentum|adagrad|adadelta|nadam|lamb|ftrl|lion|adafactor)\w{0,12}(?:/|$)"
)


def layer_in(op: str | None, is_keras_3: bool = False) -> str | None:
    """The innermost part of the name that can be a layer's; None where no part can.

    Keras 3 enters every name twice, and TensorFlow numbers the second: `functional_1/block_3_1/Relu` is the layer block_3.
    """
    if not op or "/" not in op:
        return None
    bare = WRAPPED.sub("/", JITTED.sub("/", op[:600])).replace(")", "/")
    parts = [part for part in bare.split("/") if part]
    for place in range(len(parts) - 2, -1, -1):
        part = parts[place]
        numbered = NUMBERED.match(part)
        plain = numbered[1] if numbered else part
        if plain not in SCOPES and not plain.endswith("_grad") and LAYER_NAME.match(part):
            is_renumbered = is_keras_3 and numbered and place and NUMBERED.match(parts[place - 1])
            return plain if is_renumbered else part
    return None
