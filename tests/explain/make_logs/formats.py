"""Logs that cannot be had on this machine (GPUs, TPUs, old TensorFlow), written from the formats in facts.md 7 and in TensorFlow's source.

    .venv/bin/python tests/explain/make_logs/formats.py

Every one is marked `"made": "format"` in the manifest, with the numbers that were put in.
"""

import json
from pathlib import Path

from dumps import Dump, exception

LOGS = Path(__file__).parents[2] / "data" / "logs"
MANIFEST = LOGS / "manifest.json"
MIB, GIB = 1024**2, 1024**3
CASES = {}
STAMP = "2023-04-23 01:00:06.362905: "
CREATED = (
    STAMP
    + "I tensorflow/core/common_runtime/gpu/gpu_device.cc:1613] Created device /job:localhost/replica:0/task:0/device:GPU:0 with {} MB memory:  -> device: 0, name: Tesla T4, pci bus id: 0000:00:04.0, compute capability: 7.5"
)


def case(name, cause, text, **numbers):
    CASES[name] = (
        text if isinstance(text, str) else "\n".join(text) + "\n",
        {"cause": cause, "made": "format"} | numbers,
    )


def of(dump, **more):
    free = [size for size, used in dump.chunks if not used]
    found = {
        "failed_bytes": dump.asked,
        "limit_bytes": dump.limit,
        "in_use_bytes": dump.in_use,
        "free_bytes": dump.limit - dump.in_use,
    }
    return found | {"largest_free_bytes": max(free, default=0), "allocator": dump.allocator} | more


def old_dumps():
    activations = (
        [(38535168, True)] * 40
        + [(102760448, True)] * 20
        + [(9437184, True)] * 12
        + [(1048576, False), (2359296, True), (6029312, False)]
    )
    for version, limit in (
        ("1.0", None),
        ("1.4", None),
        ("1.15", None),
        ("2.0", None),
        ("2.3", None),
        ("2.10", None),
        ("2.16", None),
    ):
        chunks = list(activations)
        pool = sum(size for size, _ in chunks)
        asked = 256 * 56 * 56 * 64 * 4
        dump = Dump(version, limit or pool, chunks, asked, "model/block1_conv2/Conv2D")
        node = "block1_conv2/convolution" if version.startswith("1.") else "model/block1_conv2/Conv2D"
        lines = [
            "Using TensorFlow backend.",
            "Epoch 1/5",
            *dump.lines(),
            *exception(dump, [256, 64, 56, 56], node=node),
        ]
        expected = of(dump, tensor_shape=[256, 64, 56, 56], layer="block1_conv2")
        if version == "1.0":
            expected.pop("allocator")
        if version.startswith("1."):
            expected["failed_bytes"] = 196 * MIB
        case(f"dump_tf_{version.replace('.', '_')}", "batch_or_activations", lines, **expected)


def torn_and_weights():
    torn = [(64 * MIB, True), (96 * MIB, False)] * 24
    dump = Dump("2.10", sum(size for size, _ in torn), torn, 512 * MIB, "model/concatenate_3/concat")
    case(
        "torn_gpu",
        "fragmentation",
        [*dump.lines(), *exception(dump, [32, 64, 256, 256], node="model/concatenate_3/concat")],
        **of(dump, tensor_shape=[32, 64, 256, 256], layer="concatenate_3"),
    )
    held = [(411041792, True)] * 9 + [(16777216, True)] * 6 + [(1048576, False)]
    dump = Dump("1.15", sum(size for size, _ in held), held, 411041792)
    lines = [*dump.lines(), *exception(dump, [25088, 4096], node="training/Adam/Variable_26/Assign")]
    case(
        "adam_slot_tf_1_15",
        "weights_or_optimizer_state",
        lines,
        **of(dump, tensor_shape=[25088, 4096]) | {"failed_bytes": 392 * MIB},
    )


def shared_cards():
    shrinking, size = [], 14773796864
    while size > 200 * MIB:
        shrinking.append(
            f"{STAMP}I tensorflow/stream_executor/cuda/cuda_driver.cc:733] failed to allocate {size / GIB:.2f}G ({size} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
        )
        size = size * 9 // 10 // 256 * 256
    case(
        "driver_shrinking",
        "gpu_shared_or_preallocated",
        [CREATED.format(14089), *shrinking, "Epoch 1/10"],
        failed_bytes=14773796864,
    )
    hip = [
        line.replace("cuda/cuda_driver.cc:733", "rocm/rocm_driver.cc:614").replace(
            "CUDA_ERROR_OUT_OF_MEMORY: out of memory", "HIP_ERROR_OutOfMemory"
        )
        for line in shrinking
    ]
    case("driver_hip", "gpu_shared_or_preallocated", hip, failed_bytes=14773796864)
    case(
        "no_context",
        "gpu_shared_or_preallocated",
        [
            "E tensorflow/core/common_runtime/direct_session.cc:137] Internal: failed initializing StreamExecutor for CUDA device ordinal 0: Internal: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY; total memory reported: 11719409664",
            "Traceback (most recent call last):",
            '  File "train.py", line 12, in <module>',
            "tensorflow.python.framework.errors_impl.InternalError: Failed to create session.",
        ],
    )
    case(
        "cubin",
        "gpu_shared_or_preallocated",
        "E1122 00:10:47.231964  290312 pjrt_stream_executor_client.cc:3077] Execution of replica 0 failed: RESOURCE_EXHAUSTED: Failed to load in-memory CUBIN (compiled for a different GPU?).: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n",
    )
    small = [(1024, True)] * 8 + [(64 * MIB, True), (100 * MIB, False)]
    dump = Dump("2.10", 258 * MIB, small, 128 * MIB, "_EagerConst")
    first = "2018-05-01 12:00:00.000000: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1356] Found device 0 with properties: \nname: GeForce GTX 1080 Ti major: 6 minor: 1\ntotalMemory: 10.92GiB freeMemory: 312.56MiB"
    case(
        "starved_card",
        "gpu_shared_or_preallocated",
        [
            first,
            *dump.lines(),
            "InternalError: Failed copying input tensor from /job:localhost/replica:0/task:0/device:CPU:0 to /job:localhost/replica:0/task:0/device:GPU:0 in order to run _EagerConst: Dst tensor is not initialized.",
        ],
        **of(dump),
    )


def libraries():
    handle = "2019-06-23 19:34:30.142558: E tensorflow/stream_executor/cuda/cuda_dnn.cc:329] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR"
    algorithm = "tensorflow.python.framework.errors_impl.UnknownError: Failed to get convolution algorithm. This is probably because cuDNN failed to initialize, so try looking to see if a warning log message was printed above.\n\t [[{{node conv2d_1/convolution}}]]"
    case(
        "cudnn_handle",
        "cudnn_init_memory",
        [
            CREATED.format(7176),
            "Epoch 1/10",
            handle,
            handle,
            "Traceback (most recent call last):",
            '  File "train.py", line 30, in <module>',
            algorithm,
        ],
    )
    case(
        "cudnn_jax",
        "cudnn_init_memory",
        [
            "E0000 00:00:1700000000.000000  1234 cuda_dnn.cc:522] Loaded cuDNN version 8902",
            "Could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED",
            "jaxlib.xla_extension.XlaRuntimeError: FAILED_PRECONDITION: DNN library initialization failed. Look at the errors above for more details.",
        ],
    )
    case(
        "cublas_handle",
        "cudnn_init_memory",
        [
            "2021-01-01 10:00:00.000000: E tensorflow/stream_executor/cuda/cuda_blas.cc:226] failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED",
            "tensorflow.python.framework.errors_impl.InternalError: Attempting to perform BLAS operation using StreamExecutor without BLAS support [Op:MatMul]",
        ],
    )
    case(
        "cudnn_version",
        "unknown",
        [
            "2019-02-01 10:00:00.000000: E tensorflow/stream_executor/cuda/cuda_dnn.cc:363] Loaded runtime CuDNN library: 7.1.4 but source was compiled with: 7.4.1.  CuDNN library major and minor version needs to match or have higher minor version in case of CuDNN 7.0 or later version.",
            algorithm,
        ],
    )
    tried = (
        STAMP
        + "W tensorflow/core/common_runtime/bfc_allocator.cc:271] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.16GiB with freed_by_count=0. The caller indicates that this is not a failure, but may mean that there could be performance gains if more memory were available."
    )
    case(
        "not_a_failure",
        "not_an_error",
        [
            CREATED.format(13775),
            "Epoch 1/2",
            tried,
            tried,
            "100/100 [==============================] - 12s 120ms/step - loss: 0.3",
        ],
    )
    case(
        "no_algorithm",
        "workspace_or_autotune",
        [
            tried,
            tried,
            "Traceback (most recent call last):",
            '  File "train.py", line 30, in <module>',
            "tensorflow.python.framework.errors_impl.NotFoundError: No algorithm worked!\n\t [[node model/conv3d_2/Conv3D (defined at train.py:30) ]] [Op:__inference_train_function_4123]",
        ],
    )
    case(
        "best_algorithm",
        "workspace_or_autotune",
        [
            STAMP
            + "W external/org_tensorflow/tensorflow/compiler/xla/service/gpu/gpu_conv_algorithm_picker.cc:729] Failed to allocate scratch memory: RESOURCE_EXHAUSTED: Failed to allocate request for 4.50GiB (4831838208B) on device ordinal 0",
            "jaxlib.xla_extension.XlaRuntimeError: UNKNOWN: Failed to determine best cudnn convolution algorithm for:",
        ],
        failed_bytes=4831838208,
    )
    workspace = [(1073741824, True)] * 6 + [(104857600, False)]
    dump = Dump(
        "2.10",
        sum(size for size, _ in workspace),
        workspace,
        1610612736,
        "gradient_tape/model/conv2d_9/Conv2D/Conv2DBackpropFilter",
    )
    case(
        "scratch_bytes",
        "workspace_or_autotune",
        [*dump.lines(), *exception(dump, [1610612736], "uint8")],
        **of(dump, tensor_shape=[1610612736], dtype="uint8", layer="conv2d_9"),
    )


def compiled():
    case(
        "xla_buffers",
        "batch_or_activations",
        [
            "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17196646400 bytes.",
            "BufferAssignment OOM Debugging.",
            "BufferAssignment stats:",
            "             parameter allocation:  372.76MiB",
            "              constant allocation:    48.5KiB",
            "        maybe_live_out allocation:  372.70MiB",
            "     preallocated temp allocation:   16.02GiB",
            "  preallocated temp fragmentation:  680.30MiB (4.15%)",
            "                 total allocation:   16.75GiB",
            "              total fragmentation:  681.00MiB (3.97%)",
            "Peak buffers:",
            "\tBuffer 1:",
            "\t\tSize: 1.50GiB",
            '\t\tOperator: op_name="jit(train_step)/jit(main)/jvp(conv2d_4)/conv_general_dilated" source_file="train.py" source_line=31',
            "\t\tXLA Label: fusion",
            "\t\tShape: f32[256,64,112,224]",
            "\t\t==========================",
        ],
        failed_bytes=17196646400,
        layer="conv2d_4",
    )
    case(
        "xla_parameters",
        "weights_or_optimizer_state",
        [
            "RuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 205520896 bytes.",
            "BufferAssignment OOM Debugging.",
            "BufferAssignment stats:",
            "             parameter allocation:   12.40GiB",
            "              constant allocation:         0B",
            "        maybe_live_out allocation:    1.10GiB",
            "     preallocated temp allocation:    1.96GiB",
            "                 total allocation:   15.46GiB",
        ],
        failed_bytes=205520896,
    )
    hbm = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 17.60G of 16.00G hbm. Exceeded hbm capacity by 1.60G."
    case(
        "tpu_program",
        "batch_or_activations",
        [
            hbm,
            "",
            "Total hbm usage >= 18.12G:",
            "    reserved        530.00M ",
            "    program          17.60G ",
            "    arguments            0B ",
            "",
            "Program hbm requirement 17.60G:",
            "    HLO temp         17.59G (100.0% utilization: Unpadded (17.50G) Padded (17.50G), 0.3% fragmentation (60.00M))",
        ],
        failed_bytes=int(17.6 * GIB),
        limit_bytes=16 * GIB,
    )
    case(
        "tpu_arguments",
        "weights_or_optimizer_state",
        [
            hbm,
            "",
            "Total hbm usage >= 18.12G:",
            "    reserved        530.00M ",
            "    program           2.10G ",
            "    arguments        15.50G ",
        ],
        failed_bytes=int(17.6 * GIB),
        limit_bytes=16 * GIB,
    )
    case(
        "tpu_reserve",
        "batch_or_activations",
        [
            "Traceback (most recent call last):",
            '  File "/home/me/train.py", line 101, in train_step',
            "RuntimeError: RESOURCE_EXHAUSTED: Error loading program: Attempting to reserve 12.27G at the bottom of memory. That was not possible. There are 8.99G free, 0B reserved, and 8.99G reservable.",
        ],
        failed_bytes=int(12.27 * 1024**3),
        free_bytes=int(8.99 * 1024**3),
    )
    case(
        "jax_old_request",
        "batch_or_activations",
        "RuntimeError: Resource exhausted: Failed to allocate request for 87.48GiB (93935126000B) on device ordinal 0\n",
        failed_bytes=93935126000,
        device="GPU:0",
    )
    case(
        "remat_warning",
        "not_an_error",
        "W0000 00:00:1756998431.440298    5182 hlo_rematerialization.cc:3183] Can't reduce memory use below 10.64GiB (11428802214 bytes) by rematerialization; only reduced to 11.27GiB (12101070356 bytes), down from 13.51GiB (14506252042 bytes) originally\n",
    )
    case(
        "tf_xla",
        "batch_or_activations",
        [
            "Traceback (most recent call last):",
            '  File "train.py", line 9, in <module>',
            "tensorflow.python.framework.errors_impl.ResourceExhaustedError: Out of memory while trying to allocate 9.60GiB. [Op:__inference_train_function_4021]",
        ],
        failed_bytes=int(9.6 * GIB),
    )


def torch():
    case(
        "torch_old",
        "batch_or_activations",
        "RuntimeError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 7.79 GiB total capacity; 6.61 GiB already allocated; 107.19 MiB free; 6.70 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.\n",
        failed_bytes=512 * MIB,
        limit_bytes=int(7.79 * GIB),
        in_use_bytes=int(6.61 * GIB),
        free_bytes=int(107.19 * MIB),
        device="GPU:0",
    )
    case(
        "torch_others",
        "gpu_shared_or_preallocated",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.69 GiB of which 12.88 MiB is free. Process 1234 has 20.10 GiB memory in use. Including non-PyTorch memory, this process has 3.56 GiB memory in use. Of the allocated memory 3.10 GiB is allocated by PyTorch, and 11.45 MiB is reserved by PyTorch but unallocated.\n",
        failed_bytes=20 * MIB,
        limit_bytes=int(23.69 * GIB),
        in_use_bytes=int(3.1 * GIB),
        free_bytes=int(12.88 * MIB),
    )
    case(
        "torch_torn",
        "fragmentation",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB of which 310.00 MiB is free. Including non-PyTorch memory, this process has 15.40 GiB memory in use. Of the allocated memory 9.10 GiB is allocated by PyTorch, and 5.80 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n",
        failed_bytes=2 * GIB,
        limit_bytes=int(15.77 * GIB),
        in_use_bytes=int(9.1 * GIB),
        free_bytes=310 * MIB,
    )


def host():
    case(
        "dmesg_global",
        "host_ram_other",
        [
            "[2059991.491436] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user.slice,task=python3,pid=25315,uid=0",
            "[2059991.491542] Out of memory: Killed process 25315 (python3) total-vm:53312244kB, anon-rss:31451456kB, file-rss:74816kB, shmem-rss:12296kB, UID:0 pgtables:69068kB oom_score_adj:0",
        ],
        in_use_bytes=31451456 * 1024,
    )
    case(
        "journal_old",
        "host_ram_other",
        [
            "Jul 15 10:12:01 box kernel: Out of memory: Kill process 4321 (python) score 912 or sacrifice child",
            "Jul 15 10:12:01 box kernel: Killed process 4321 (python) total-vm:12312244kB, anon-rss:7451456kB, file-rss:0kB",
        ],
        in_use_bytes=7451456 * 1024,
    )
    case(
        "slurm",
        "host_ram_other",
        [
            "slurmstepd: error: Step 1234.0 exceeded memory limit (8437788 > 8388608), being killed",
            "srun: error: node12: task 0: Killed",
        ],
        in_use_bytes=8437788 * 1024,
        limit_bytes=8388608 * 1024,
    )
    case(
        "shuffle_killed",
        "host_ram_dataset",
        [
            "Epoch 1/10",
            STAMP
            + "I tensorflow/core/kernels/data/shuffle_dataset_op.cc:390] Filling up shuffle buffer (this may take a while): 812 of 10000",
            STAMP
            + "I tensorflow/core/kernels/data/shuffle_dataset_op.cc:390] Filling up shuffle buffer (this may take a while): 1633 of 10000",
            "Killed",
        ],
    )
    case(
        "killed_late",
        "leak_or_growth",
        [
            "Epoch 1/50",
            "469/469 - 10s - loss: 0.4 - 21ms/step",
            *[f"Epoch {number}/50\n469/469 - 10s - loss: 0.3 - 21ms/step" for number in range(2, 32)],
            "Killed",
        ],
    )
    case(
        "cpu_dataset",
        "host_ram_dataset",
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[50000,224,224,3] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu [Op:Cast]\n",
        tensor_shape=[50000, 224, 224, 3],
        failed_bytes=50000 * 224 * 224 * 3 * 4,
        allocator="cpu",
        device="CPU:0",
    )
    case(
        "old_line",
        "tensor_too_large",
        [
            "2017-12-01 10:00:00.123456: W tensorflow/core/framework/op_kernel.cc:1192] Resource exhausted: OOM when allocating tensor of shape [32256512,512] and type float",
            "\t [[Node: dense_1/kernel/Assign = Const[dtype=DT_FLOAT]()]]",
        ],
        tensor_shape=[32256512, 512],
        failed_bytes=32256512 * 512 * 4,
    )
    case(
        "glued",
        "batch_or_activations",
        "\x1b[1m  1/500\x1b[0m \x1b[37m━━━━━━━━━━\x1b[0m \x1b[1m1:02:03\x1b[0m 7s/step - loss: 2.3\r\x1b[1m  2/500\x1b[0m\x08\x08\x08"
        + STAMP
        + "W tensorflow/core/framework/op_kernel.cc:1828] OP_REQUIRES failed at conv_ops_fused_impl.h:761 : RESOURCE_EXHAUSTED: OOM when allocating tensor with shape[512,64,112,112] and type half on /job:localhost/replica:0/task:0/device:GPU:1 by allocator GPU_1_bfc\r\n",
        tensor_shape=[512, 64, 112, 112],
        failed_bytes=512 * 64 * 112 * 112 * 2,
        device="GPU:1",
        allocator="GPU_1_bfc",
        dtype="float16",
    )
    case(
        "protobuf",
        "graph_constant_too_large",
        [
            "[libprotobuf ERROR google/protobuf/message_lite.cc:449] tensorflow.GraphDef exceeded maximum protobuf size of 2GB: 2654321987",
            "ValueError: GraphDef cannot be larger than 2GB.",
        ],
        failed_bytes=2654321987,
    )
    case(
        "plain_training",
        "unknown",
        [
            "Epoch 1/2",
            "100/100 - 3s - loss: 0.5 - accuracy: 0.8",
            "Epoch 2/2",
            "100/100 - 3s - loss: 0.4 - accuracy: 0.9",
        ],
    )
    case(
        "grpc_message",
        "unknown",
        'grpc._channel._InactiveRpcError: status = StatusCode.RESOURCE_EXHAUSTED details = "Received message larger than max (5242886 vs. 4194304)"\n',
    )


def main():
    for write in (old_dumps, torn_and_weights, shared_cards, libraries, compiled, torch, host):
        write()
    entries = {entry["file"]: entry for entry in json.loads(MANIFEST.read_text())} if MANIFEST.exists() else {}
    for name, (text, expected) in CASES.items():
        (LOGS / f"{name}.log").write_bytes(text.encode())
        entries[f"{name}.log"] = {"file": f"{name}.log"} | expected
    MANIFEST.write_text("[\n" + ",\n".join(json.dumps(entry) for _, entry in sorted(entries.items())) + "\n]\n")
    print(len(CASES), "logs written")


if __name__ == "__main__":
    main()
