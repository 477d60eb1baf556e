"""Messages as TensorFlow 2.21 really wrote them."""

from legroom.engines.out_of_memory import crash_clues, oom_of, read_log, read_message

ON = "on /job:localhost/replica:0/task:0/device:CPU:0 by allocator bfc_cpu_allocator_for_gpu"
EAGER = (
    "{{function_node __wrapped__Mul_device_/job:localhost/replica:0/task:0/device:CPU:0}} OOM when allocating tensor with "
    f"shape[4096,4096] and type half {ON} [Op:Mul] name: "
)
GRAPH = f"""Graph execution error:

Detected at node net_1/second_1/Relu defined at (most recent call last):
  File "train.py", line 8, in <module>

OOM when allocating tensor with shape[64,60,60,32] and type float {ON}
\t [[{{{{node net_1/second_1/Relu}}}}]]
Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_allocations_upon_oom"""
XLA = "Out of memory while trying to allocate 1.49GiB. [Op:__inference_f_10]"
CRASH = """W0000 00:00:1794745428.467515   17266 bfc_allocator.cc:502] Allocator (bfc_cpu_allocator_for_gpu) ran out of memory trying to allocate 256.00MiB (rounded to 268435456)requested by op Pad
If the cause is memory fragmentation maybe the environment variable will improve the situation.
Fatal Python error: Segmentation fault

Current thread 0x00007fee55899b80 (most recent call first):
  File "/venv/lib/python3.11/site-packages/tensorflow/python/framework/constant_op.py", line 108 in convert_to_eager_tensor
  File "/home/me/train.py", line 2 in <module>
"""


class ResourceExhaustedError(Exception):
    pass


def test_an_eager_error():
    fact = read_message(EAGER)
    assert (fact.op, fact.shape, fact.dtype, fact.asked_bytes) == ("Mul", (4096, 4096), "float16", 2**25)
    assert fact.message == f"OOM when allocating tensor with shape[4096,4096] and type half {ON}"


def test_an_error_in_a_graph_names_the_node_and_not_the_way_there():
    fact = read_message(GRAPH)
    assert (fact.op, fact.dtype, fact.asked_bytes) == ("net_1/second_1/Relu", "float32", 64 * 60 * 60 * 32 * 4)
    assert fact.message.startswith("OOM when allocating tensor with shape[64,60,60,32]")


def test_a_scalar_has_a_shape_and_a_message_without_one_has_none():
    assert read_message("OOM when allocating tensor with shape[] and type int64").asked_bytes == 8
    fact = read_message(XLA)
    assert (fact.shape, fact.asked_bytes, fact.op) == (None, None, "__inference_f_10")
    assert read_message("").message == "ResourceExhaustedError"


def test_it_is_found_behind_other_errors_and_only_there():
    error = ValueError("could not be built")
    assert oom_of(error) is None
    error.__cause__ = ResourceExhaustedError(EAGER)
    fact = oom_of(error)
    assert fact is not None
    assert fact.op == "Mul"


def test_the_log_of_a_crash():
    fact = read_log(CRASH)
    assert fact is not None
    assert (fact.op, fact.asked_bytes, fact.place) == ("Pad", 2**28, "/home/me/train.py:2 in <module>")
    assert read_log(CRASH.replace("If the cause", "The caller indicates that this is not a failure")) is None
    aborted = "F0000 00:00:1 1 tensor.cc:12] Check failed: a == b\n" + CRASH.partition("\n")[2]
    assert read_log(aborted) is None
    assert crash_clues(aborted) == [aborted.partition("\n")[0], "at /home/me/train.py:2 in <module>"]
