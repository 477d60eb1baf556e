"""Whether a tensor is a weight or an activation: by what its operation is called, then by its shape.

A name says it where it can: initializers, slots, assignments and an optimizer's scope make weights, and so does the gradient of what a layer
holds; what a layer puts out, and the gradient of what it was given, have the batch in them. A shape says it where the name does not.
"""

import re

from legroom.explain.layers import OPTIMIZERS

LARGEST_KERNEL = 11
LARGEST_BATCH = 4096
CHANNELS = 32
LONG_ROW = 1_000_000
STATE_OPS = re.compile(
    r"Initializer|VarHandle|AssignVariable|(?:^|/)Assign|[Rr]estore|Variable_\d|ResourceApply|SparseApply|/(?:m|v|momentum|velocity)$"
    r"|/(?:bias(?:es)?|weights?|kernel|gamma|beta|embeddings?|moving_mean|moving_variance)(?:/(?:Read|read|Cast|Regularizer)\b[\w/]{0,60})?$"
    r"|(?:^|/)(?:Apply(?:Adam|GradientDescent|Momentum|RMSProp|Adagrad|Ftrl|Adadelta)\w{0,12}|ReadVariableOp|ScatterUpdate)(?:_\d{1,4})?$"
)
RANDOM_OPS = re.compile(
    r"Random(?:Standard)?(?:Normal|Uniform)|TruncatedNormal|random_(?:uniform|normal)|truncated_normal|Initializer"
)
FILLING_OPS = re.compile(r"zeros_like|(?:^|/)(?:Fill|zeros|ones|ZerosLike)(?:_\d{1,4})?$")
WEIGHT_GRADIENT = re.compile(
    r"MatMul(?:_\d{1,4})?_grad/MatMul_1$|gradient_tape/[\w./-]{1,200}/MatMul(?:/MatMul)?_1$|BackpropFilter\w{0,4}$|_grad/b_acc"
)
ACTIVATION_OPS = re.compile(
    r"MatMul(?:_\d{1,4})?_grad/MatMul$|BackpropInput|(?:^|/)(?:Relu6?|LeakyRelu|Elu|Selu|Gelu|Erf|Tanh|Sigmoid|(?:Log)?Softmax|BiasAdd|ConcatV?2?|concat|BatchMatMul(?:V2)?"
    r"|Einsum|MaxPool\w{0,8}|AvgPool\w{0,8}|FusedBatchNorm\w{0,4}|Resize\w{6,20}|OneHot|one_hot|Pad(?:V2)?|DepthwiseConv2dNative)(?:_\d{1,4})?$|dropout"
)
FORWARD = re.compile(r"(?:^|/)(?:MatMul|Conv[123]D|convolution|conv2d_transpose|BiasAdd)(?:_\d{1,4})?$")
OF_GRADIENTS = re.compile(r"gradient|_grad/")
OF_EXAMPLES = re.compile(  # scopes in which everything has the batch in it
    r"cross_entropy|xent|logits|accuracy|attention|(?:^|/)metrics|while/|TensorArray|StackP(?:ush|op)|TensorList|embedding_lookup|Gather(?:V2|Nd)?(?:_\d{1,4})?$"
)


def is_weight_shape(shape: tuple[int, ...] | None) -> bool:
    """Kernels have small first sizes and channels behind; embeddings and dense kernels have more rows than a batch."""
    if shape is None or len(shape) < 2:
        return False
    if len(shape) in (4, 5):
        return is_kernel_shape(shape[:-2], shape[-2:])
    return len(shape) == 2 and shape[0] > LARGEST_BATCH and shape[1] >= 16


def is_kernel_shape(kernel: tuple[int, ...], channels: tuple[int, ...]) -> bool:
    """Square and odd, as most are; 2 and 4 as those that enlarge; 1 by 7 as those that are taken apart. 1 by 3 may be a picture."""
    if max(kernel) > LARGEST_KERNEL or max(channels) < CHANNELS:
        return False
    if len(set(kernel)) == 1:
        return kernel[0] in (1, 3, 5, 7, 9, 11) or (kernel[0] in (2, 4) and min(channels) >= CHANNELS)
    return len(kernel) == 2 and sorted(kernel) in ([1, 5], [1, 7], [1, 9]) and min(channels) >= CHANNELS


def is_activation_op(op: str | None) -> bool:
    """Whether an operation's result has the batch in it by its name: what layers put out, and the gradient of what they were given."""
    name = op or ""
    if WEIGHT_GRADIENT.search(name):
        return False
    if ACTIVATION_OPS.search(name):
        return True
    return not OF_GRADIENTS.search(name) and bool(OF_EXAMPLES.search(name) or ("/" in name and FORWARD.search(name)))


def is_state_op(op: str | None, shape: tuple[int, ...] | None) -> bool:
    """Whether an operation makes or updates weights or an optimizer's slots, by its name, and for one that only fills by its shape."""
    if not op or "dropout" in op.lower():
        return False
    if OPTIMIZERS.search(op) and "gradients/" not in op:
        return True
    if RANDOM_OPS.search(op):
        return shape is None or len(shape) <= 2 or is_weight_shape(shape) or "Initializer" in op
    return bool(STATE_OPS.search(op)) or (bool(FILLING_OPS.search(op)) and is_weight_shape(shape))


def is_weight_gradient(op: str | None, shape: tuple[int, ...] | None) -> bool:
    """The gradient of a kernel has the kernel's shape; on the way to it a convolution also turns its input around."""
    if not op or shape is None or not WEIGHT_GRADIENT.search(op):
        return False
    return is_weight_shape(shape) if "BackpropFilter" in op else len(shape) == 2


def is_long_row(shape: tuple[int, ...] | None, dtype: str | None) -> bool:
    """A single row of millions of floats: all gradients or weights in one buffer, as for a reduction over several cards."""
    return shape is not None and len(shape) == 1 and shape[0] >= LONG_ROW and "float" in (dtype or "")
