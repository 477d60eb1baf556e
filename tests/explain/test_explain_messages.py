"""Single messages, in numbers of our own: what each says, and which cause it speaks for."""

import io

import pytest

import legroom
from legroom.errors import InputError
from legroom.explain.blocks import BLOCK_BYTES
from legroom.explain.diagnose import explain_stream
from legroom.explain.lines import WHOLE_BYTES

MIB, GIB = 1024**2, 1024**3
CASES = {
    "pytorch's own spelling": (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 1 has a total capacty of 8.00 GiB of which "
        "5.00 GiB is free. Of the allocated memory 2.00 GiB is allocated by PyTorch, and 256.00 MiB is reserved by PyTorch but unallocated.",
        "tensor_too_large",
        {"limit_bytes": 8 * GIB, "failed_bytes": 9 * GIB, "free_bytes": 5 * GIB, "in_use_bytes": 2 * GIB},
    ),
    "as much free as was asked for, and as much in pieces": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 40.00 GiB of which 5.00 GiB is "
        "free. Of the allocated memory 32.00 GiB is allocated by PyTorch, and 4.00 GiB is reserved by PyTorch but unallocated.",
        "fragmentation",
        {"failed_bytes": 2 * GIB, "free_bytes": 5 * GIB},
    ),
    "an array that no machine holds": (
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 200. GiB for an array with shape (163840, 163840) and data type float64",
        "tensor_too_large",
        {"tensor_shape": (163840, 163840), "dtype": "float64"},
    ),
    "a whole data set through a layer": (
        "ResourceExhaustedError: OOM when allocating tensor with shape[9000,24,24,64] and type float on "
        "/job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu\n\t [[{{node net/Conv2D}}]]",
        "batch_or_activations",
        {"tensor_shape": (9000, 24, 24, 64), "op": "net/Conv2D"},
    ),
    "one image on the host": (
        "ResourceExhaustedError: OOM when allocating tensor with shape[700,900,3] and type float on "
        "/job:localhost/replica:0/task:0/device:CPU:0 by allocator mklcpu\n\t [[{{node decode_image/Cast}}]]",
        "host_ram_dataset",
        {"tensor_shape": (700, 900, 3)},
    ),
    "engines of cuDNN that are tried out": (
        "Profiling failure on cuDNN engine: CUDNN_STATUS_INTERNAL_ERROR\nProfiling failure on cuDNN engine: CUDNN_STATUS_ALLOC_FAILED",
        "workspace_or_autotune",
        {},
    ),
    "Windows' number for its paging file": (
        "Could not load library cudnn_cnn_train64_8.dll. Error code 1455",
        "host_ram_other",
        {},
    ),
    "a TPU's array": (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Allocation (size=51539607552) would exceed memory (size=34359738368) :: #allocation3 "
        "[shape = 'bf16[8192,1024,3072]{2,1,0}', space=hbm]",
        "tensor_too_large",
        {"failed_bytes": 48 * GIB, "limit_bytes": 32 * GIB, "tensor_shape": (8192, 1024, 3072), "dtype": "bfloat16"},
    ),
    "a TPU with two kinds of cores": (
        "RESOURCE_EXHAUSTED: TPU TensorCore Hbm usage: 8.00G, SparseCore Hbm usage 16.00G, exceeding available bytes: 16.00G",
        "batch_or_activations",
        {"failed_bytes": 24 * GIB, "limit_bytes": 16 * GIB},
    ),
    "a TPU's table in one line": (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 40.00G of 16.00G hbm. Total hbm usage >= 40.00G: "
        "reserved 1.00M program unknown size arguments 40.00G",
        "weights_or_optimizer_state",
        {"failed_bytes": 40 * GIB, "limit_bytes": 16 * GIB},
    ),
    "MIOpen": (
        "MIOpen Error: handlehip.cpp:70: Memory not available to allocate buffer: 123456789\n"
        "F rocm_dnn.cc:1603] Check failed: Unable to find a suitable algorithm for doing forward convolution",
        "workspace_or_autotune",
        {"failed_bytes": 123456789},
    ),
    "one incident of many engines": (
        "No algorithm worked!  Error messages:\n"
        "  Profiling failure on CUDNN engine 1: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 90000000 bytes.\n"
        "  Profiling failure on CUDNN engine 0: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 16777216 bytes.\n"
        "\t [[{{node model/conv2d_9/Conv2D}}]] [Op:__inference_train_function_7]",
        "workspace_or_autotune",
        {"failed_bytes": 90000000, "op": "model/conv2d_9/Conv2D", "incidents": 1},
    ),
    "the node that could not start": (
        "E cuda_dnn.cc:329] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR\n"
        "E cuda_dnn.cc:443] Memory usage: 300000000 bytes free, 8000000000 bytes total.\n"
        "UnknownError: Failed to get convolution algorithm.\n\t [[{{node net/conv0/Conv2D}}]]",
        "cudnn_init_memory",
        {"op": "net/conv0/Conv2D", "limit_bytes": 8000000000, "free_bytes": 300000000},
    ),
    "the allocator that warned": (
        "W bfc_allocator.cc:243] Allocator (GPU_3_bfc) ran out of memory trying to allocate 1.25GiB with freed_by_count=0. The caller "
        "indicates that this is not a failure, but may mean that there could be performance gains if more memory were available.",
        "not_an_error",
        {"allocator": "GPU_3_bfc", "failed_bytes": 1280 * MIB},
    ),
    "eviction by Kubernetes": (
        "Warning  Evicted  kubelet  The node was low on resource: memory. Container trainer was using 30Gi.",
        "host_ram_other",
        {},
    ),
    "one large allocation, then the end": (
        "W cpu_allocator_impl.cc:82] Allocation of 20000000000 exceeds 10% of free system memory.\nKilled",
        "host_ram_other",
        {},
    ),
    "weights that are made on the host": (
        "Traceback (most recent call last):\n"
        '  File "train.py", line 9, in <module>\n    model.add(Dense(2048))\n'
        '  File "lib/keras/initializations.py", line 43, in glorot_uniform\n'
        '  File "lib/numpy/core/numeric.py", line 460, in asarray\nMemoryError',
        "weights_or_optimizer_state",
        {},
    ),
    "an image of the pipeline": (
        "W op_kernel.cc:1763] OP_REQUIRES failed at image_resizer_state.h:142 : Resource exhausted: OOM when allocating tensor with "
        "shape[1,300,300,3] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
        "host_ram_dataset",
        {"tensor_shape": (1, 300, 300, 3), "failed_bytes": 1080000, "device": "CPU:0", "allocator": "cpu"},
    ),
    "an optimizer's operation, by where it was defined": (
        "(0) Resource exhausted: failed to allocate memory\nOriginal stack trace for 'mul_12':\n"
        '  File "trainer.py", line 58, in train\n  File "optimizers/RMSprop.py", line 58, in get_update_op',
        "weights_or_optimizer_state",
        {"op": "mul_12"},
    ),
    "an edge between devices is no count of operations": (
        "InternalError: Dst tensor is not initialized.\n\t [[Node: Tile_3/_9876 = _Recv[tensor_type=DT_FLOAT]()]]",
        "batch_or_activations",
        {"op": "Tile_3/_9876"},
    ),
    "a pool of next to nothing": (
        "bfc_allocator.cc:1010] Stats:\nLimit:                    50000000\nInUse:                        2048\n"
        "MaxInUse:                     2048\nNumAllocs:                       6\nMaxAllocSize:                 1280\n"
        "InternalError: Dst tensor is not initialized.",
        "gpu_shared_or_preallocated",
        {"limit_bytes": 50000000, "in_use_bytes": 2048, "free_bytes": 49997952},
    ),
    "weights that are loaded": (
        '  File "run.py", line 270, in get_models\n    net.load_weights(path)\n'
        '  File "site-packages/keras/backend.py", line 4302, in batch_set_value\n'
        "InternalError: Failed copying input tensor from device:CPU:0 to device:GPU:0 in order to run _EagerConst: "
        "Dst tensor is not initialized.",
        "weights_or_optimizer_state",
        {"op": "_EagerConst"},
    ),
    "a constant's shape in its node": (
        "InternalError: Dst tensor is not initialized.\n"
        "\t [[Node: zeros_7 = Const[dtype=DT_FLOAT, value=Tensor<type: float shape: [20000,1000] values: [0 0 0]...>]()]]",
        "weights_or_optimizer_state",
        {"op": "zeros_7", "tensor_shape": (20000, 1000), "dtype": "float32", "failed_bytes": 80000000},
    ),
    "a notebook that was restarted after a large allocation": (
        "7:54:49 AM | INFO | KernelRestarter: restarting kernel (1/5), keep random ports\n"
        "7:54:04 AM | WARNING | tcmalloc: large alloc 3000000000 bytes == 0x5bbf0000 @ 0x7feed825d1e7",
        "host_ram_other",
        {},
    ),
    "a large allocation alone": ("tcmalloc: large alloc 3000000000 bytes == 0x5bbf0000", "not_an_error", {}),
    "the scratch memory of a core": (
        "ResourceExhaustedError: Ran out of memory in memory space vmem. It should not be possible to run out of vmem.",
        "workspace_or_autotune",
        {},
    ),
    "the shell behind a time stamp": (
        "2020-01-02 03:04:05.106 /bin/bash: line 27: 318 Killed sh start.sh",
        "host_ram_other",
        {},
    ),
    "Windows in another language": ("OSError: [WinError 1455] 页面文件太小，无法完成操作。", "host_ram_other", {}),
    "a process that holds nothing": (
        "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 4.00 GiB is free. Of the "
        "allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.",
        "gpu_shared_or_preallocated",
        {"in_use_bytes": 0, "free_bytes": 4 * GIB},
    ),
    "a pod's limit": (
        "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n    Limits:\n      cpu:     25m\n"
        "      memory:  48Mi\n    Requests:\n      cpu:     25m\n      memory:  24Mi",
        "host_ram_other",
        {"limit_bytes": 48 * MIB},
    ),
    "the kernel in two lines": (
        "[ 142.8] Memory cgroup out of memory: Killed process 28914 (server) \n     total-vm:2418296kB, anon-rss:2048512kB, file-rss:0kB\n"
        "[ 142.9] oom_reaper: reaped process 28914 (server), now anon-rss:0kB",
        "host_ram_other",
        {"in_use_bytes": 2048512 * 1024},
    ),
    "a TPU without room for a little": (
        "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 9.00M. That was not possible. There are 3.00M free.",
        "batch_or_activations",
        {"failed_bytes": 9 * MIB, "free_bytes": 3 * MIB},
    ),
    "an initializer whatever its shape": (
        "ResourceExhaustedError: OOM when allocating tensor with shape[700,300000] and type float\n"
        "\t [[{{node inter/dense2/weight/Initializer/random_uniform/RandomUniform}}]]",
        "weights_or_optimizer_state",
        {"tensor_shape": (700, 300000), "failed_bytes": 840000000},
    ),
    "cuDNN on a card that is free": (
        "E cuda_dnn.cc:535] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR\n"
        "E cuda_dnn.cc:539] Memory usage: 15000000000 bytes free, 17000000000 bytes total.",
        "unknown",
        {},
    ),
    "a process that may use little of the card": (
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 64.00 GiB of which 60.00 GiB "
        "is free. 1.00 GiB allowed; Of the allocated memory 1000.00 MiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.",
        "batch_or_activations",
        {"limit_bytes": GIB, "in_use_bytes": 1000 * MIB},
    ),
    "a card with far more room than was asked for": (
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 MiB. GPU 7 has a total capacity of 200.00 GiB of which 150.00 GiB "
        "is free. Of the allocated memory 40.00 GiB is allocated by PyTorch, and 9.00 GiB is reserved by PyTorch but unallocated.",
        "unknown",
        {"free_bytes": 150 * GIB, "device": "GPU:7"},
    ),
    "a small program on a card that was full": (
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 250000000 bytes.\nBufferAssignment stats:\n"
        "        maybe_live_out allocation:   90.00MiB\n     preallocated temp allocation:  238.00MiB",
        "gpu_shared_or_preallocated",
        {"failed_bytes": 250000000},
    ),
    "a model that is loaded": (
        "model = AutoModel.from_pretrained(name)\n"
        "RuntimeError: Resource exhausted: Failed to allocate request for 90.00MiB (94371840B) on device ordinal 0",
        "weights_or_optimizer_state",
        {"failed_bytes": 94371840},
    ),
    "PyTorch on the host": (
        "DefaultCPUAllocator: not enough memory: you tried to allocate 5000000000 bytes.",
        "host_ram_other",
        {"failed_bytes": 5000000000},
    ),
    "a worker that cannot be forked": ("OSError: can't allocate memory", "host_ram_other", {}),
    "no scratch space": (
        "Node: 'gradient_tape/model/conv3d_2/Conv3DBackpropFilterV2'\n"
        "CUDNN failed to allocate the scratch space for the runner or to find a working no-scratch runner.",
        "workspace_or_autotune",
        {"op": "gradient_tape/model/conv3d_2/Conv3DBackpropFilterV2"},
    ),
    "a graph as it is serialized": (
        "InvalidArgumentError: Cannot serialize protocol buffer of type tensorflow.GraphDef as the serialized size (2600000000bytes) would be "
        "larger than the limit (2147483647 bytes)",
        "graph_constant_too_large",
        {"failed_bytes": 2600000000, "limit_bytes": 2147483647},
    ),
    "Ray": (
        "Memory on the node where the task was running was 60.00GB / 64.00GB (0.952289), which exceeds the memory usage threshold of 0.95. "
        "Ray killed this worker",
        "host_ram_other",
        {"in_use_bytes": 60 * GIB, "limit_bytes": 64 * GIB},
    ),
    "a container that was not ended for memory": (
        "ExitCode:137,\nOOMKilled:false,\nexited with code 137",
        "unknown",
        {},
    ),
    "the gradient of what a layer was given": (
        "OOM when allocating tensor with shape[20000,2048]\n\t [[Node: tower_0/gradients/tower_0/MatMul_4_grad/MatMul = MatMul[T=DT_FLOAT]()]]",
        "batch_or_activations",
        {"op": "tower_0/gradients/tower_0/MatMul_4_grad/MatMul"},
    ),
    "a variable by its name": (
        "OOM when allocating tensor of shape [128] and type float\n[[{{node pose/Mconv3_stage4/biases}}]]",
        "weights_or_optimizer_state",
        {"failed_bytes": 512, "tensor_shape": (128,)},
    ),
    "an assignment by its kernel": (
        "op_kernel.cc:1651] OP_REQUIRES failed at assign_op.h:117 : Resource exhausted: OOM when allocating tensor with shape[256] and type "
        "float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        "weights_or_optimizer_state",
        {"failed_bytes": 1024},
    ),
    "parameters that are put on the device": (
        "Traceback (most recent call last):\n"
        '  File "jax/_src/api.py", line 2801, in device_put_replicated\n'
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 400000000 bytes.",
        "weights_or_optimizer_state",
        {"failed_bytes": 400000000},
    ),
    "this process under another number": (
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 224.00 MiB. GPU 0 has a total capacity of 16.00 GiB of which 7.00 MiB is free. "
        "Process 130036 has 15.99 GiB memory in use. Of the allocated memory 15.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by "
        "PyTorch but unallocated.",
        "batch_or_activations",
        {"limit_bytes": 16 * GIB, "in_use_bytes": 15 * GIB},
    ),
    "a signal as a shell counts it": (
        "torchrun: failed (exitcode: -9) local_rank: 2 (pid: 1617)",
        "host_ram_other",
        {},
    ),
    "a signal as Python counts it": (
        "[ERROR] ['python', 'train.py'] exits with return code = -9",
        "host_ram_other",
        {},
    ),
    "a signal by its name": ("subprocess died with <Signals.SIGKILL: 9>.", "host_ram_other", {}),
    "another signal": ("[ERROR] ['python', 'train.py'] exits with return code = -11", "unknown", {}),
    "a hint that only such an error has": (
        "Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_allocations_upon_oom to RunOptions.",
        "batch_or_activations",
        {},
    ),
    "a node of TensorFlow 1": (
        "ResourceExhaustedError: OOM when allocating tensor with shape[1,512,40,30]\n"
        '\t [[Node: net/conv3/BatchNorm/FusedBatchNorm = FusedBatchNorm[T=DT_HALF, data_format="NHWC", _device="/job:localhost/replica:0/task:0/gpu:1"](a, b)]]\n'
        '\t [[Node: Reshape_2/_12 = _HostRecv[tensor_type=DT_INT32, _device="/job:localhost/replica:0/task:0/device:CPU:0"]()]]',
        "batch_or_activations",
        {"dtype": "float16", "device": "GPU:1", "failed_bytes": 1228800, "op": "net/conv3/BatchNorm/FusedBatchNorm"},
    ),
    "a sentence's full stop": (
        "OOM when allocating tensor with shape[20,7,7,64] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc.",
        "batch_or_activations",
        {"allocator": "GPU_0_bfc"},
    ),
    "a card by its number": (
        "InternalError: CUDA runtime implicit initialization on GPU:2 failed. Status: out of memory",
        "gpu_shared_or_preallocated",
        {"device": "GPU:2"},
    ),
    "a mail": (
        '> Traceback (most recent call last):\n>   File\n> "/usr/lib/python3.5/site-packages/tensorflow/python/client/session.py",\n'
        "> line 1323, in _do_call\n> tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when\n"
        "> allocating tensor with shape[512,40000]\n>      [[Node:\n> gradients/dynamic_network/decoder/output_projection/Tensordot/MatMul_grad/MatMul_1\n"
        '> = MatMul[T=DT_FLOAT, transpose_a=true,\n> _device="/job:localhost/replica:0/task:0/device:GPU:0"](decoder/output_projection/Reshape)]]',
        "weights_or_optimizer_state",
        {"tensor_shape": (512, 40000), "failed_bytes": 81920000, "device": "GPU:0"},
    ),
    "an empty pool": (
        "bfc_allocator.cc:1104] total_region_allocated_bytes_: 4000000000 memory_limit_: 4000000000 available bytes: 0\n"
        "bfc_allocator.cc:1110] Stats: \nLimit:                      4000000000\nInUse:                            2048\n"
        "MaxInUse:                         2048\nNumAllocs:                           3\nMaxAllocSize:                     1280",
        "tensor_too_large",
        {"limit_bytes": 4000000000, "in_use_bytes": 2048},
    ),
    "the middle of a dump": (
        "bfc_allocator.cc:998] Bin (67108864): \tTotal Chunks: 3, Chunks in use: 1. 270.00MiB allocated for chunks.\n"
        "bfc_allocator.cc:1014] Bin for 500.00MiB was 256.00MiB, Chunk State: \n"
        "bfc_allocator.cc:1020]   Size: 300.00MiB | Requested Size: 19.51MiB | in_use: 0 | bin_num: 20, prev:   Size: 4.88MiB",
        "batch_or_activations",
        {"failed_bytes": 500 * MIB, "largest_free_bytes": 300 * MIB},
    ),
    "many layers of one size": (
        "bfc_allocator.cc:419] Allocator (GPU_0_bfc) ran out of memory trying to allocate 26.00MiB (rounded to 27206656).\n"
        "bfc_allocator.cc:917] 400 Chunks of size 27206656 totalling 10.16GiB\nbfc_allocator.cc:921] Sum Total of in-use chunks: 10.16GiB\n"
        "bfc_allocator.cc:929] Stats: \nLimit:                 10890000000\nInUse:                 10882662400\n"
        "OOM when allocating tensor with shape[1,326,326,64] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        "batch_or_activations",
        {"limit_bytes": 10890000000, "in_use_bytes": 10882662400},
    ),
    "data that had been loaded before": (
        "Start Epoch 34 ...\nTraceback (most recent call last):\n"
        '  File "data_load.py", line 35, in get_data\n  File "audio.py", line 13, in read_wav\nOSError: [Errno 12] Cannot allocate memory',
        "leak_or_growth",
        {},
    ),
    "nothing was asked for": (
        "E bfc_allocator.cc:244] tried to allocate 0 bytes\nW allocator_retry.cc:30] Request to allocate 0 bytes\nResourceExhaustedError",
        "unknown",
        {"failed_bytes": None},
    ),
    "nothing was asked for, and then something": (
        "E bfc_allocator.cc:244] tried to allocate 0 bytes\n"
        "OOM when allocating tensor with shape[48,32,120,120] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        "batch_or_activations",
        {"tensor_shape": (48, 32, 120, 120)},
    ),
    "a compiled step that asked for nothing": (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 0 bytes.",
        "unknown",
        {},
    ),
    "a tensor without elements": ("OOM when allocating tensor with shape[0,96] and type float", "unknown", {}),
    "more elements than a card has bytes": (
        "OOM when allocating tensor with shape[3000000,80000]",
        "tensor_too_large",
        {"tensor_shape": (3000000, 80000), "failed_bytes": None},
    ),
    "more elements than the pool has bytes": (
        "Created TensorFlow device (/job:localhost/replica:0/task:0/device:GPU:0 with 3000 MB memory)\n"
        "OOM when allocating tensor with shape[90000,40000]",
        "tensor_too_large",
        {"limit_bytes": 3000 * MIB},
    ),
    "Metal's memory beside PyTorch's": (
        "RuntimeError: MPS backend out of memory (MPS allocated: 2.00 GiB, other allocations: 41.00 GiB, max allowed: 48.00 GiB). Tried to allocate 9.00 GiB",
        "gpu_shared_or_preallocated",
        {"failed_bytes": 9 * GIB, "limit_bytes": 48 * GIB, "in_use_bytes": 2 * GIB, "free_bytes": 5 * GIB},
    ),
    "Metal's memory full of PyTorch's": (
        "RuntimeError: MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: 640.00 KB, max allowed: 18.00 GB). Tried to allocate 2.00 GB",
        "batch_or_activations",
        {"in_use_bytes": 17 * GIB, "free_bytes": GIB - 640 * 1024},
    ),
    "PyTorch's message in lines of its sentences": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB.\nGPU 2 has a total capacity of 40.00 GiB of which 1.00 GiB is free.\n"
        "Including non-PyTorch memory, this process has 38.00 GiB memory in use.\nOf the allocated memory 36.00 GiB is allocated by PyTorch, and 64.00 MiB\n"
        'is reserved by PyTorch but unallocated.\n\n  File "m.py", line 3, in forward\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB.',
        "batch_or_activations",
        {"limit_bytes": 40 * GIB, "free_bytes": GIB, "in_use_bytes": 36 * GIB, "device": "GPU:2"},
    ),
    "PyTorch's idle memory in a line of its own": (
        "CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total capacity of 24.00 GiB of which 0.50 GiB is free.\n"
        "Of the allocated memory 12.00 GiB is allocated by PyTorch,\nand 11.00 GiB is reserved by PyTorch but unallocated.",
        "fragmentation",
        {"in_use_bytes": 12 * GIB},
    ),
    "PyTorch's old message in lines": (
        "RuntimeError: CUDA out of memory. Tried to allocate 3.00 GiB\n(GPU 1; 12.00 GiB total capacity;\n10.00 GiB already allocated;\n1.00 GiB free;\n"
        "10.50 GiB reserved in total by PyTorch)",
        "batch_or_activations",
        {"limit_bytes": 12 * GIB, "in_use_bytes": 10 * GIB, "free_bytes": GIB, "device": "GPU:1"},
    ),
    "TensorFlow's message in lines": (
        "ResourceExhaustedError: OOM when allocating tensor with\nshape[48,32,120,120] and type half on\n/job:localhost/replica:0/task:0/device:GPU:1 by allocator\nGPU_1_bfc",
        "batch_or_activations",
        {"dtype": "float16", "device": "GPU:1", "allocator": "GPU_1_bfc", "failed_bytes": 44236800},
    ),
    "NumPy's message in lines": (
        "MemoryError: Unable to allocate 2.24 GiB\nfor an array with shape (8000, 100, 100, 10)\nand data type float32",
        "host_ram_dataset",
        {"dtype": "float32", "tensor_shape": (8000, 100, 100, 10)},
    ),
    "an allocator that is named behind": (
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2345678901 bytes\n  in a step\nAllocator (GPU_1_bfc) has no more",
        "batch_or_activations",
        {"allocator": "GPU_1_bfc", "failed_bytes": 2345678901},
    ),
    "where a copy went": (
        "InternalError: Failed copying input tensor from /job:localhost/replica:0/task:0/device:CPU:0 to "
        "/job:localhost/replica:0/task:0/device:GPU:3 in order to run Identity: Dst tensor is not initialized.",
        "batch_or_activations",
        {"device": "GPU:3", "op": "Identity"},
    ),
    "where a copy went, by its key": (
        "SameWorkerRecvDone unable to allocate output tensor. Key: /job:localhost/replica:0/task:0/cpu:0;00000000000000ab;"
        "/job:localhost/replica:0/task:0/gpu:2;edge_31_x;0:0",
        "batch_or_activations",
        {"device": "GPU:2"},
    ),
    "a card as nvidia-smi prints it": (
        "| 41%   60C    P2   120W / 250W |  10900MiB / 11178MiB |     12%      Default |\n"
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "cudnn_init_memory",
        {"limit_bytes": 11178 * MIB, "free_bytes": 278 * MIB},
    ),
    "a slice of a card, with commas": (
        "MIG 1: 9,600 MiB / 9,856 MiB used = 256 MiB free\nCUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cudnn_init_memory",
        {"free_bytes": 256 * MIB},
    ),
    "nvidia-smi shows the run itself": (
        "|  15900MiB / 16160MiB |     99%      Default |\nOOM when allocating tensor with shape[64,64,112,112] and type float on "
        "/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
        "batch_or_activations",
        {},
    ),
    "what a layer was given": (
        "OutOfMemoryError: Exception encountered when calling Softmax.call().\n\nCUDA out of memory. Tried to allocate 1.22 GiB.\n\n"
        "Arguments received by Softmax.call():\n  • inputs=torch.Tensor(shape=torch.Size([2, 16, 200, 51200]), dtype=float32)\n"
        "  • mask=torch.Tensor(shape=torch.Size([2, 1, 200, 51200]), dtype=bool)",
        "batch_or_activations",
        {"tensor_shape": (2, 16, 200, 51200), "dtype": "float32", "failed_bytes": 1310720000},
    ),
    "the class of the layer that was called": (
        "OutOfMemoryError: Exception encountered when calling Conv3D.call().\n\nCUDA out of memory. Tried to allocate 700.00 MiB.",
        "batch_or_activations",
        {"op": "Conv3D", "layer": None},
    ),
    "a whole model is no operation": (
        "OutOfMemoryError: Exception encountered when calling Functional.call().\n\nCUDA out of memory. Tried to allocate 700.00 MiB.",
        "batch_or_activations",
        {"op": None},
    ),
    "PyTorch's allocator of the host": (
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 77000000 bytes. Error code 12 (Cannot allocate memory)",
        "host_ram_other",
        {"allocator": "DefaultCPUAllocator", "device": "CPU:0", "failed_bytes": 77000000},
    ),
    "a TPU's account": (
        "Attempting to reserve 2.50G at the bottom of memory. That was not possible. There are 1.25G free, 0B reserved, and 1.25G reservable.\n"
        "HBM capacity 16.00G:\n          Currently allocated:   14.50G (  15,569,256,448 bytes)\n"
        "          Program requirement:    2.50G (   2,684,354,560 bytes)\nHeap allocator status:\n    Max free chunk             1.25G (0.0% fragmentation)",
        "batch_or_activations",
        {
            "limit_bytes": 16 * GIB,
            "in_use_bytes": 15569256448,
            "free_bytes": 1280 * MIB,
            "largest_free_bytes": 1280 * MIB,
            "failed_bytes": 2560 * MIB,
        },
    ),
    "a TPU's memory in pieces": (
        "Attempting to reserve 3.00G at the bottom of memory. That was not possible. There are 6.00G free, 0B reserved, and 1.00G reservable.\n"
        "HBM capacity 16.00G:\n          Currently allocated:   10.00G (  10,737,418,240 bytes)\n    Max free chunk             1.00G (83.3% fragmentation)",
        "fragmentation",
        {"largest_free_bytes": GIB},
    ),
    "a context, and a number below zero": (
        "failed initializing StreamExecutor for CUDA device ordinal 3: Internal: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY; "
        "total memory reported: 18446744073600000000",
        "gpu_shared_or_preallocated",
        {"device": "GPU:3", "limit_bytes": None},
    ),
    "what a layer was given is not what it asked for": (
        "CUDA out of memory. Tried to allocate 5.00 GiB.\nArguments received by Mix.call():\n  • x=torch.Tensor(shape=torch.Size([2, 16]), dtype=float32)",
        "batch_or_activations",
        {"tensor_shape": None, "dtype": None},
    ),
    "tf.data's budget": (
        "W prefetch_autotuner.cc:52] Prefetch autotuner tried to allocate 900000000 bytes after encountering the first element of size 900000000 bytes."
        "This already causes the autotune ram budget to be exceeded. To stay within the ram budget, reduce element size",
        "not_an_error",
        {},
    ),
}


@pytest.mark.parametrize(("text", "cause", "numbers"), CASES.values(), ids=CASES)
def test_what_a_message_says(text, cause, numbers):
    found = legroom.explain(text + "\n")
    assert found.cause == cause
    assert {name: getattr(found, name) for name in numbers} == numbers


NOTHING = "W allocator_retry.cc:30] Request to allocate 0 bytes\nResourceExhaustedError\n"


def test_a_request_for_nothing_is_said_to_be_no_lack_of_memory():
    why = legroom.explain(NOTHING).why
    assert why == "0 bytes were asked for and refused: that is a fault of the framework. This is not about memory."


def test_a_request_for_nothing_needs_no_longer_log():
    assert not legroom.explain(NOTHING).advice


def test_sentences_are_put_together_only_around_an_error():
    text = "Checked the memory of the device\nfailed to load a font\nand allocated nothing\n"
    assert legroom.explain(text).cause == "unknown"


STATS = """\
bfc_allocator.cc:812] 2 Chunks of size 2000000000 totalling 3.73GiB
bfc_allocator.cc:816] Sum Total of in-use chunks: 3.73GiB
bfc_allocator.cc:818] total_region_allocated_bytes_: 8000000000 memory_limit_: 10000000000 available bytes: 2000000000
bfc_allocator.cc:824] Stats:
Limit:                 10000000000
InUse:                  4000000256
MaxInUse:               4000000256
NumAllocs:                      25
MaxAllocSize:           2000000000
"""


@pytest.mark.parametrize(
    "prefix", ["", "[2024-03-01 10:00:00,001] [worker-0] ", "trainer-1  | ", "2024-03-01T10:00:00Z stderr F "]
)
def test_statistics_behind_a_loggers_stamp(prefix):
    found = legroom.explain("".join(f"{prefix}{line}\n" for line in STATS.splitlines()))
    assert (found.limit_bytes, found.in_use_bytes, found.free_bytes) == (10000000000, 4000000256, 5999999744)
    assert found.largest_free_bytes is None  # 6 GB are free, and the list of holes is cut off
    assert found.cause == "unknown"  # a pool that is far from full, and nothing says what was asked for


@pytest.mark.parametrize("broken", ["Out \nof memory", "Out\nof memory", "Out of me\nmory"])
def test_lines_that_a_terminal_broke(broken):
    text = f"first\nE local_client.cc:672] Execution of replica 0 failed: Resource exhausted: {broken} while trying to allocate 5000000000 bytes.\nlast\n"
    found = legroom.explain(text)
    assert (found.cause, found.failed_bytes) == ("batch_or_activations", 5000000000)
    assert found.causes[0].evidence[0].line == 2


def test_what_was_found_is_found_whole_where_a_terminal_broke_it():
    text = (
        "ResourceExhaustedError (see above for traceback): OOM when allocating tensor wit\n"
        "h shape[3,3,512,1024] and type float on /job:localhost/replica:0/task:0/device:G\n"
        "PU:0 by allocator GPU_0_bfc\n"
        "         [[node training/Adam/Variable_16/Assign (defined at train.py:402)]]\n"
    )
    found = legroom.explain(text)
    assert (found.cause, found.op) == ("weights_or_optimizer_state", "training/Adam/Variable_16/Assign")
    assert (found.tensor_shape, found.failed_bytes) == ((3, 3, 512, 1024), 18874368)
    assert (found.device, found.allocator) == ("GPU:0", "GPU_0_bfc")


@pytest.mark.parametrize("place", [0, 1])
def test_every_phrase_is_found_in_a_log_of_usual_size_and_at_the_end_of_a_large_one(place):
    said = "DefaultCPUAllocator: not enough: you tried to allocate 123456789 bytes.\n"
    noise = "step 12345 loss 0.1234 accuracy 0.9876\n" * (WHOLE_BYTES // 35)
    found = legroom.explain((said + noise, noise + said)[place])
    assert (found.cause, found.failed_bytes) == ("host_ram_other", 123456789)


@pytest.mark.parametrize(
    "data", [b"\0\0\0", b"\0" * (2 * BLOCK_BYTES), b"\xca\xfe\xba\xbe\0\0\0\x34" + b"a name " * 9, bytes(range(256))]
)
def test_short_binaries_are_no_logs(data):
    with pytest.raises(InputError, match="not a text file"):
        explain_stream(io.BytesIO(data), "that")


def test_a_log_that_was_emptied_while_it_was_written():
    text = b"\0" * (BLOCK_BYTES + 7) + b"\nstd::bad_alloc\n"
    assert explain_stream(io.BytesIO(text), "that").cause == "host_ram_other"
