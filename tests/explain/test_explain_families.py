"""Families of messages, from the sources of those who write them, in numbers of our own: each is heard, and with the right cause."""

import pytest

import legroom
from legroom.explain import lines

MIB, GIB = 1024**2, 1024**3
BATCH, WEIGHTS, SHARED, OTHER = (
    "batch_or_activations",
    "weights_or_optimizer_state",
    "gpu_shared_or_preallocated",
    "host_ram_other",
)
DATA, LARGE, WORKSPACE, START = "host_ram_dataset", "tensor_too_large", "workspace_or_autotune", "cudnn_init_memory"
CONSTANT, LEAK, NONE, UNKNOWN = "graph_constant_too_large", "leak_or_growth", "not_an_error", "unknown"

DEVICES = {
    "CUDA of old PyTorch": (
        "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/aten/src/THC/generic/THCStorage.cu:58",
        BATCH,
        {},
    ),
    "CUDA through a check": ("THCudaCheck FAIL file=THCStorage.cu line=58 error=2 : out of memory", BATCH, {}),
    "CUDA in Caffe": (
        "F0101 10:00:00.0 99 syncedmem.cpp:71] Check failed: error == cudaSuccess (2 vs. 0)  out of memory",
        BATCH,
        {},
    ),
    "CUDA in MXNet": (
        "MXNetError: src/storage/./pooled_storage_manager.h:151: cudaMalloc failed: out of memory",
        BATCH,
        {},
    ),
    "CUDA in CNTK": ("CUDA failure 2: out of memory ; GPU=0 ; hostname=box ; expr=cudaMalloc", BATCH, {}),
    "CUDA in ggml": (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory",
        BATCH,
        {"failed_bytes": 4 * GIB},
    ),
    "CuPy": (
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 1,600,000,000 bytes (allocated so far: 5,120 bytes).",
        BATCH,
        {"failed_bytes": 1600000000},
    ),
    "numba": (
        "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY",
        BATCH,
        {},
    ),
    "RMM": (
        "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: rmm/mr/device/cuda_memory_resource.hpp:70: cudaErrorMemoryAllocation out of memory",
        BATCH,
        {},
    ),
    "Theano's old backend": (
        "MemoryError: ('Error allocating 411041792 bytes of device memory (CNMEM_STATUS_OUT_OF_MEMORY).', \"you might consider using "
        "'theano.shared(..., borrow=True)'\")",
        BATCH,
        {"failed_bytes": 411041792},
    ),
    "Theano's driver report": (
        "Error allocating 411041792 bytes of device memory (out of memory). Driver report 200000000 bytes free and 4000000000 bytes total",
        BATCH,
        {"failed_bytes": 411041792, "free_bytes": 200000000, "limit_bytes": 4000000000},
    ),
    "Theano's new backend": (
        "pygpu.gpuarray.GpuArrayException: b'cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY: out of memory'",
        BATCH,
        {},
    ),
    "Paddle": (
        "ResourceExhaustedError: Out of memory error on GPU 0. Cannot allocate 1.250000GB memory on GPU 0, 7.500000GB memory has been "
        "allocated and available memory is only 512.000000MB.",
        BATCH,
        {"failed_bytes": 1280 * MIB},
    ),
    "ONNX Runtime": (
        "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool) Failed to allocate memory for requested buffer of size 1073741824",
        BATCH,
        {"failed_bytes": GIB},
    ),
    "ONNX Runtime's limit": (
        "bfc_arena.cc:342 Available memory of 4096 is smaller than requested bytes of 1073741824",
        BATCH,
        {"failed_bytes": GIB},
    ),
    "MPS": (
        "RuntimeError: MPS backend out of memory (MPS allocated: 8.00 GB, other allocations: 512.00 MB, max allowed: 9.00 GB). Tried to allocate "
        "768.00 MB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit",
        BATCH,
        {"failed_bytes": 768 * MIB, "limit_bytes": 9 * GIB, "in_use_bytes": 8 * GIB},
    ),
    "MPS, one buffer": ("RuntimeError: Invalid buffer size: 20.00 GB", LARGE, {"failed_bytes": 20 * GIB}),
    "MPS, one array": (
        "MPSNDArray.mm:850: failed assertion `[MPSNDArray initWithDevice:descriptor:] Error: total bytes of NDArray > 2**32'",
        LARGE,
        {},
    ),
    "Metal": (
        "Error: command buffer exited with error status.\n\tThe Metal Performance Shaders operations encoded on it may not have completed.\n"
        "\tError: \n\t(null)\n\tInsufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
        BATCH,
        {},
    ),
    "MLX": (
        "[metal::malloc] Attempting to allocate 20000000000 bytes which is greater than the maximum allowed buffer size of 9000000000 bytes.",
        LARGE,
        {"failed_bytes": 20000000000, "limit_bytes": 9000000000},
    ),
    "DirectML": (
        "RuntimeError: Could not allocate tensor with 1073741824 bytes. There is not enough GPU video memory available!",
        BATCH,
        {"failed_bytes": GIB},
    ),
    "DirectML by its number": (
        "F tensorflow/core/common_runtime/dml/dml_heap_allocator.cc:99] HRESULT failed with 0x8007000e: Not enough memory resources are "
        "available to complete this operation.",
        BATCH,
        {},
    ),
    "XPU": ("torch.OutOfMemoryError: XPU out of memory. Tried to allocate 2.00 GiB.", BATCH, {"failed_bytes": 2 * GIB}),
    "NPU": (
        "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB (NPU 0; 32.00 GiB total capacity; 29.00 GiB already allocated; "
        "29.00 GiB current active; 1.00 GiB free; 30.00 GiB reserved in total by PyTorch)",
        BATCH,
        {"failed_bytes": 2 * GIB, "limit_bytes": 32 * GIB, "in_use_bytes": 29 * GIB, "free_bytes": GIB},
    ),
    "Level Zero": ("Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)", BATCH, {}),
    "oneAPI's resources": ("Native API failed. Native API returns: -5 (PI_ERROR_OUT_OF_RESOURCES)", BATCH, {}),
    "OpenCL": ("pyopencl._cl.MemoryError: clEnqueueNDRangeKernel failed: MEM_OBJECT_ALLOCATION_FAILURE", BATCH, {}),
    "OpenCL's constant": ("clCreateBuffer failed with CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)", BATCH, {}),
    "Vulkan": ("vk::Device::allocateMemory: ErrorOutOfDeviceMemory", BATCH, {}),
    "HIP's status": ("HIP error: hipErrorOutOfMemory: out of memory at allocator.cpp:12", BATCH, {}),
    "HSA": (
        "Queue error: HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources. Code: 0x1008 Available Free mem : 0 MB",
        BATCH,
        {},
    ),
    "Neuron": ("ERROR  NRT:nrt_tensor_allocate  Failed to allocate 536870912 bytes on ND 0:NC 1", BATCH, {}),
    "WebGL": (
        "Error: Requested texture size [30000x20000] greater than WebGL maximum on this browser / GPU [16384x16384].",
        LARGE,
        {},
    ),
    "TF.js": ("High memory usage in GPU: 1050.26 MB, most likely due to a memory leak", LEAK, {}),
    "TFLite on a microcontroller": (
        "Failed to resize buffer. Requested: 12320, available 5264, missing: 7056\nAllocateTensors() failed",
        BATCH,
        {"failed_bytes": 12320, "free_bytes": 5264},
    ),
    "TFLite's arena": (
        "Arena size is too small for all buffers. Needed 71360 but only 65536 was available.",
        BATCH,
        {"failed_bytes": 71360, "limit_bytes": 65536},
    ),
    "another exabyte": (
        "RuntimeError: Storage size calculation overflowed, Tried to allocate more than 1EB memory.",
        LARGE,
        {},
    ),
    "a shape without end": (
        "ValueError: array is too big; `arr.size * arr.dtype.itemsize` is larger than the maximum possible size.",
        LARGE,
        {},
    ),
    "a dimension without end": ("ValueError: Maximum allowed dimension exceeded", LARGE, {}),
    "vLLM at its start": (
        "ValueError: Free memory on device (3.00/24.00 GiB) on startup is less than desired GPU memory utilization (0.9, 21.60 GiB).",
        SHARED,
        {"free_bytes": 3 * GIB, "limit_bytes": 24 * GIB},
    ),
    "a CUDA graph": (
        "INTERNAL: Failed to instantiate CUDA graph: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        SHARED,
        {},
    ),
    "NCCL": ("box:12:34 [0] transport/p2p.cc:238 NCCL WARN Cuda failure 'out of memory'", SHARED, {}),
    "NCCL's own memory": (
        "box:12:34 [0] include/alloc.h:99 NCCL WARN Failed to CUDA calloc 16777216 bytes",
        SHARED,
        {"failed_bytes": 16777216},
    ),
    "a card that is wanted whole": (
        "E cuda_driver.cc:936] failed to alloc 8589934592 bytes unified memory; result: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        SHARED,
        {},
    ),
    "a TPU's program that cannot be loaded": (
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Error loading program 'jit_step': Attempting to reserve 9.00G at the bottom of memory. That was "
        "not possible. There are 512.00M free, 0B reserved, and 512.00M reservable.",
        BATCH,
        {"failed_bytes": 9 * GIB, "free_bytes": 512 * MIB},
    ),
    "a TPU's scratch memory, one array": (
        "RESOURCE_EXHAUSTED: Allocation (size=134217728) would exceed memory (size=67108864) :: #allocation25 [shape = 'u8[134217728]{0}', "
        "space=vmem, size = 0x8000000, tag = 'scoped memory for kernel.2']",
        WORKSPACE,
        {"failed_bytes": 134217728, "limit_bytes": 67108864},
    ),
    "a TPU's stack": (
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem while allocating on stack for %kernel.18 = bf16[2048,4096]",
        WORKSPACE,
        {},
    ),
    "XLA's arguments alone": (
        "W hlo_rematerialization.cc:2218] The byte size of input/output arguments (13205543424) exceeds the base limit (12716343296). "
        "This indicates an error in the calculation!\n"
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 13205543424 bytes.",
        WEIGHTS,
        {"failed_bytes": 13205543424},
    ),
    "TensorFlow's asynchronous allocator": (
        "E gpu_cudamallocasync_allocator.cc:288] gpu_async_0 cuMemAllocAsync failed to allocate 4294967296 bytes: CUDA error: out of memory "
        "(CUDA_ERROR_OUT_OF_MEMORY)\n Reported by CUDA: Free memory/Total memory: 1000000000/16000000000",
        BATCH,
        {"failed_bytes": 4 * GIB, "free_bytes": 1000000000},
    ),
}
KERNELS = {
    "Triton": (
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 114688, Hardware limit: 101376. Reducing block sizes "
        "or `num_stages` may help.",
        WORKSPACE,
        {"failed_bytes": 114688, "limit_bytes": 101376},
    ),
    "ptxas": (
        "ptxas error   : Entry function 'fusion' uses too much shared data (0x1a000 bytes, 0xc000 max)",
        WORKSPACE,
        {},
    ),
    "XLA's redzones": (
        "RESOURCE_EXHAUSTED: Allocating 2000000000 bytes exceeds the memory limit of 1000000000 bytes.",
        WORKSPACE,
        {"failed_bytes": 2000000000, "limit_bytes": 1000000000},
    ),
    "cuFFT": ("InternalError: Failed to create cuFFT batched plan: CUFFT_ALLOC_FAILED", WORKSPACE, {}),
    "cuFFT's plan by number": ("E cuda_fft.cc:225] failed to create cuFFT batched plan:2", WORKSPACE, {}),
    "cuSOLVER": ("cuSolverDN call failed with status =2 CUSOLVER_STATUS_ALLOC_FAILED", WORKSPACE, {}),
    "cuSPARSE": (
        "RuntimeError: CUDA error: CUSPARSE_STATUS_ALLOC_FAILED when calling `cusparseCreate(handle)`",
        WORKSPACE,
        {},
    ),
    "cuSPARSE's resources": ("CUSPARSE_STATUS_INSUFFICIENT_RESOURCES when calling cusparseSpMM", WORKSPACE, {}),
    "cuRAND": ("CURAND_STATUS_ALLOCATION_FAILED", WORKSPACE, {}),
    "rocBLAS": ("rocblas error: rocblas_status_memory_error", WORKSPACE, {}),
    "MIOpen's workspace": ("RuntimeError: miopenStatusAllocFailed", WORKSPACE, {}),
    "PyTorch finds no algorithm": (
        "RuntimeError: Unable to find a valid cuDNN algorithm to run convolution",
        WORKSPACE,
        {},
    ),
    "PyTorch finds no engine": (
        "RuntimeError: GET was unable to find an engine to execute this computation",
        WORKSPACE,
        {},
    ),
    "JAX's solver cannot start": (
        "XlaRuntimeError: INTERNAL: jaxlib/gpu/solver_handle_pool.cc:37: operation gpusolverDnCreate(&handle) failed: cuSolver internal error",
        START,
        {},
    ),
    "JAX's BLAS cannot start": (
        "INTERNAL: jaxlib/gpu/blas_handle_pool.cc:29: operation gpublasCreate(&handle) failed: the library was not initialized",
        START,
        {},
    ),
    "TensorRT": (
        "[TRT] [E] 1: [defaultAllocator.cpp::allocate::20] Error Code 1: Cuda Runtime (out of memory)",
        BATCH,
        {},
    ),
    "TensorRT's request": (
        "[TRT] [W] Requested amount of GPU memory (17179869184 bytes) could not be allocated. There may not be enough free memory for "
        "allocation to succeed.\n[TRT] [E] 2: [builder.cpp] Error Code 2: OutOfMemory (no further information)",
        BATCH,
        {"failed_bytes": 16 * GIB},
    ),
    "TensorRT passes over a tactic": (
        "[TRT] [W] Tactic Device request: 537MB Available: 469MB. Device memory is insufficient to use tactic.\n"
        "[TRT] [W] Skipping tactic 3 due to insufficient memory on requested size of 537 detected for tactic 0x04.",
        NONE,
        {},
    ),
}
HOSTS = {
    "the JVM's heap": ("java.lang.OutOfMemoryError: Java heap space", OTHER, {}),
    "the JVM's collector": (
        'Exception in thread "main" java.lang.OutOfMemoryError: GC overhead limit exceeded',
        OTHER,
        {},
    ),
    "the JVM's start": (
        "# There is insufficient memory for the Java Runtime Environment to continue.\n"
        "# Native memory allocation (mmap) failed to map 2147483648 bytes for committing reserved memory.",
        OTHER,
        {"failed_bytes": 2 * GIB},
    ),
    "Node": (
        "FATAL ERROR: CALL_AND_RETRY_LAST Allocation failed - JavaScript heap out of memory",
        OTHER,
        {},
    ),
    ".NET": ("System.OutOfMemoryException: Insufficient memory to continue the execution of the program.", OTHER, {}),
    "Go": ("fatal error: runtime: out of memory", OTHER, {}),
    "Rust": ("memory allocation of 268435456 bytes failed", OTHER, {"failed_bytes": 268435456}),
    "R": ("Error: cannot allocate vector of size 2.5 Gb", OTHER, {"failed_bytes": 2560 * MIB}),
    "R on a Mac": ("Error: vector memory exhausted (limit reached?)", OTHER, {}),
    "Julia": ("ERROR: LoadError: OutOfMemoryError()", OTHER, {}),
    "MATLAB": ('Out of memory. Type "help memory" for your options.', OTHER, {}),
    "PHP": (
        "Fatal error: Allowed memory size of 134217728 bytes exhausted (tried to allocate 20480 bytes)",
        OTHER,
        {"failed_bytes": 20480},
    ),
    "Arrow": (
        "pyarrow.lib.ArrowMemoryError: malloc of size 8589934592 failed",
        OTHER,
        {"failed_bytes": 8 * GIB},
    ),
    "Arrow again": (
        "pyarrow.lib.ArrowMemoryError: realloc of size 8589934592 failed",
        OTHER,
        {"failed_bytes": 8 * GIB},
    ),
    "HDF5": ("OSError: Can't read data (memory allocation failed for raw data chunk)", DATA, {}),
    "HDF5, synchronously": (
        "OSError: Can't synchronously read data (memory allocation failed for raw data chunk)",
        DATA,
        {},
    ),
    "pandas": ("pandas.errors.ParserError: Error tokenizing data. C error: out of memory", DATA, {}),
    "OpenCV": (
        "cv2.error: OpenCV(4.5.1) alloc.cpp:73: error: (-4:Insufficient memory) Failed to allocate 3686400000 bytes in function 'OutOfMemoryError'",
        DATA,
        {"failed_bytes": 3686400000},
    ),
    "LuaTorch": (
        "$ Torch: not enough memory: you tried to allocate 4GB. Buy new RAM! at TH/THGeneral.c:270",
        OTHER,
        {"failed_bytes": 4 * GIB},
    ),
    "PyTorch's enforcer": (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:114] data. DefaultCPUAllocator: not enough memory: you tried to allocate 123456789 bytes.",
        OTHER,
        {"failed_bytes": 123456789},
    ),
    "oneDNN": ("ABORTED: Operation received an exception:Status: 1, message: could not create a primitive", OTHER, {}),
    "OpenBLAS": ("OpenBLAS : Memory allocation still failed after 10 retries, giving up.", OTHER, {}),
    "MKL": ("Intel MKL ERROR: Unable to allocate memory for internal buffers", OTHER, {}),
    "pinned memory": (
        "W gpu_host_allocator.h:47] could not allocate pinned host memory of size: 4294967296",
        OTHER,
        {"failed_bytes": 4 * GIB},
    ),
    "pinned memory by the driver": (
        "E cuda_driver.cc:893] failed to alloc 8589934592 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        OTHER,
        {},
    ),
    "pinned memory by its call": ("cuMemHostAlloc failed: CUDA_ERROR_OUT_OF_MEMORY", OTHER, {}),
    "a Mac's malloc": (
        "python(1234,0x7fff) malloc: *** mach_vm_map(size=5000000000) failed (error code=3)\n*** error: can't allocate region",
        OTHER,
        {"failed_bytes": 5000000000},
    ),
    "mmap": (
        "RuntimeError: unable to mmap 5000000000 bytes from file <model.bin>: Cannot allocate memory (12)",
        OTHER,
        {"failed_bytes": 5000000000},
    ),
    "errno by name": ("spawn ENOMEM", OTHER, {}),
    "a fork": ("bash: fork: Cannot allocate memory", OTHER, {}),
    "Windows 8": ("OSError: [WinError 8] Not enough memory resources are available to process this command", OTHER, {}),
    "Windows 14": ("OSError: [WinError 14] Not enough storage is available to complete this operation", OTHER, {}),
    "Windows 1450": (
        "OSError: [WinError 1450] Insufficient system resources exist to complete the requested service",
        OTHER,
        {},
    ),
    "Windows 1455": (
        "OSError: [WinError 1455] The paging file is too small for this operation to complete.",
        OTHER,
        {},
    ),
    "Windows NO_MEMORY": ("Process finished with exit code -1073741801 (0xC0000017)", OTHER, {}),
    "Windows COMMITMENT_LIMIT": ("Process finished with exit code -1073741523 (0xC000012D)", OTHER, {}),
    "C++ on Windows": ("RuntimeError: bad allocation", OTHER, {}),
}
ENDED = {
    "Slurm's srun": ("srun: error: node7: task 0: Out Of Memory", OTHER, {}),
    "Slurm's event": (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step tasks have been OOM Killed.",
        OTHER,
        {},
    ),
    "Slurm's step": ("slurmstepd: error: Exceeded step memory limit at some point.", OTHER, {}),
    "Slurm's state": ("State: OUT_OF_MEMORY (exit code 0)", OTHER, {}),
    "Slurm's table": ("123456       train   gpu   lab   8 OUT_OF_ME+    0:125", OTHER, {}),
    "PBS": (
        "=>> PBS: job killed: mem 67108864kb exceeded limit 33554432kb",
        OTHER,
        {"in_use_bytes": 64 * GIB, "limit_bytes": 32 * GIB},
    ),
    "PBS, virtual": (
        "=>> PBS: job killed: vmem 67108864kb exceeded limit 33554432kb",
        OTHER,
        {"limit_bytes": 32 * GIB},
    ),
    "PBS in a cgroup": ("Cgroup mem limit exceeded: oom-kill:constraint=CONSTRAINT_MEMCG", OTHER, {}),
    "LSF": ("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", OTHER, {}),
    "SGE": (
        'job 12 exceeds job hard limit "h_vmem" of queue "all.q@n1" (9000000000.0 > limit:8000000000.0) - sending SIGKILL',
        OTHER,
        {},
    ),
    "HTCondor": (
        "Job was held. Error from slot1@n1: Job has gone over memory limit of 2048 megabytes. Peak usage: 3072 megabytes.",
        OTHER,
        {},
    ),
    "YARN through Spark": (
        "ExecutorLostFailure (executor 3 exited): Reason: Container killed by YARN for exceeding memory limits. 12.5 GB of 12 GB physical memory used.",
        OTHER,
        {"in_use_bytes": 12800 * MIB, "limit_bytes": 12 * GIB},
    ),
    "YARN itself": (
        "Container [pid=9,containerID=container_1] is running beyond physical memory limits. Current usage: 2.5 GB of 2 GB physical memory used; "
        "4.0 GB of 4.2 GB virtual memory used. Killing container.",
        OTHER,
        {"in_use_bytes": 2560 * MIB, "limit_bytes": 2 * GIB},
    ),
    "Dask's nanny": ("distributed.nanny - WARNING - Worker exceeded 95% memory budget. Restarting", OTHER, {}),
    "Dask's worker": (
        "distributed.worker.memory - WARNING - Worker is at 85% memory usage. Pausing worker.  Process memory: 3.00 GiB -- Worker memory limit: 4.00 GiB",
        OTHER,
        {"in_use_bytes": 3 * GIB, "limit_bytes": 4 * GIB},
    ),
    "Ray's older word": (
        "ray.memory_monitor.RayOutOfMemoryError: More than 95% of the memory on node box is used (62.5 / 64.0 GB).",
        OTHER,
        {"in_use_bytes": 64000 * MIB, "limit_bytes": 64 * GIB},
    ),
    "Ray's task": (
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        OTHER,
        {},
    ),
    "Ray's store": (
        "ray.exceptions.ObjectStoreFullError: Failed to put object ff in object store because it is full. Object size is 5000000000 bytes.",
        OTHER,
        {"failed_bytes": 5000000000},
    ),
    "joblib": (
        "TerminatedWorkerError: A worker process managed by the executor was unexpectedly terminated. This could be caused by a segmentation fault "
        "or by an excessive memory usage causing the Operating System to kill the worker.",
        OTHER,
        {},
    ),
    "Kubernetes' event": (
        "Warning  OOMKilling  node/n1  Memory cgroup out of memory: Killed process 9 (python)",
        OTHER,
        {},
    ),
    "Kubernetes' system": (
        "Warning  SystemOOM  kubelet  System OOM encountered, victim process: python, pid: 9",
        OTHER,
        {},
    ),
    "Kubernetes' pressure": ("The node had condition: [MemoryPressure].", OTHER, {}),
    "containerd": ('level=info msg="TaskOOM event container_id:\\"ab\\""', OTHER, {}),
    "Docker's table": ('ab12  trainer  "python train.py"  2 hours ago  Exited (137) 5 minutes ago', OTHER, {}),
    "Docker's flag": ('"OOMKilled": true,', OTHER, {}),
    "ECS": ("OutOfMemoryError: Container killed due to memory usage", OTHER, {}),
    "Heroku": ("Error R14 (Memory quota exceeded)", OTHER, {}),
    "Cloud Run": (
        "Memory limit of 512 MiB exceeded with 530 MiB used. Consider increasing the memory limit",
        OTHER,
        {"limit_bytes": 512 * MIB, "in_use_bytes": 530 * MIB},
    ),
    "Lambda": ("Error: Runtime exited with error: signal: killed Runtime.ExitError", OTHER, {}),
    "AI Platform": (
        "The replica master 0 ran out-of-memory and exited with a non-zero status of 9(SIGKILL).",
        OTHER,
        {},
    ),
    "Vertex": ("Replicas low on memory: workerpool0. Please choose a machine with more memory.", OTHER, {}),
    "SageMaker": (
        "AlgorithmError: Please use an instance type with more memory, or reduce the size of job data processed on an instance., exit code: 137",
        OTHER,
        {},
    ),
    "Databricks": (
        "The spark driver has stopped unexpectedly and is restarting. Your notebook will be automatically reattached. Driver ran out of memory.",
        OTHER,
        {},
    ),
    "Kaggle": ("Your notebook tried to allocate more memory than is available. It has restarted.", OTHER, {}),
    "Colab": ("Your session crashed after using all available RAM.", OTHER, {}),
    "PyCharm": ("Process finished with exit code 137 (interrupted by signal 9:SIGKILL)", OTHER, {}),
    "systemd": ("train.service: A process of this unit has been killed by the OOM killer.", OTHER, {}),
    "systemd's result": ("train.service: Failed with result 'oom-kill'.", OTHER, {}),
    "systemd-oomd": (
        "systemd-oomd[99]: Killed /user.slice/user-1000.slice due to memory pressure for /user.slice being 61.2% > 50.00% for > 20s",
        OTHER,
        {},
    ),
    "earlyoom": ("earlyoom: low memory! at or below SIGTERM limits: mem 10.00%, swap 10.00%", OTHER, {}),
    "a Mac's kernel": (
        "kernel: memorystatus: killing_specific_process pid 99 [python] (vm-compressor-space-shortage)",
        OTHER,
        {},
    ),
    "a Mac's window": ("Your system has run out of application memory.", OTHER, {}),
    "zsh": ("zsh: killed     python train.py", OTHER, {}),
    "shared memory of workers": (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        OTHER,
        {},
    ),
    "shared memory of NCCL": (
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-ab (size 9637888), No space left on device",
        OTHER,
        {},
    ),
}
CONSTANTS = {
    "a message over its limit": (
        "[libprotobuf ERROR coded_stream.cc:207] A protocol message was rejected because it was too big (more than 67108864 bytes).",
        CONSTANT,
        {},
    ),
    "ONNX": (
        "ValueError: Message onnx.ModelProto exceeds maximum protobuf size of 2GB: 3336000000",
        CONSTANT,
        {"failed_bytes": 3336000000},
    ),
    "a proto": ("ValueError: Cannot create a tensor proto whose content is larger than 2GB.", CONSTANT, {}),
}
OTHERWISE = {
    "gRPC's largest message": (
        'status = StatusCode.RESOURCE_EXHAUSTED details = "Received message larger than max (12345678 vs. 4194304)"',
        UNKNOWN,
        {"failed_bytes": None},
    ),
    "a quota": (
        "google.api_core.exceptions.ResourceExhausted: 429 Quota exceeded for quota metric 'Requests'",
        UNKNOWN,
        {},
    ),
    "a disk": ("OSError: [Errno 28] No space left on device: '/data/model.h5'", UNKNOWN, {}),
    "a disk under TensorFlow": (
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: /ckpt/model.data-00000; No space left on device",
        UNKNOWN,
        {},
    ),
    "files": ("OSError: [Errno 24] Too many open files", UNKNOWN, {}),
    "files under TensorFlow": ("ResourceExhaustedError: /data/a.tfrecord; Too many open files", UNKNOWN, {}),
    "threads": ("RuntimeError: can't start new thread", UNKNOWN, {}),
    "threads of OpenBLAS": (
        "OpenBLAS blas_thread_init: pthread_create failed for thread 13 of 64: Resource temporarily unavailable",
        UNKNOWN,
        {},
    ),
    "registers": ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for launch", UNKNOWN, {}),
    "a wrong address": ("CUDA error: an illegal memory access was encountered", UNKNOWN, {}),
    "a broken heap": ("malloc(): memory corruption\nAborted (core dumped)", UNKNOWN, {}),
    "a segmentation fault": ("Process finished with exit code 139 (interrupted by signal 11: SIGSEGV)", UNKNOWN, {}),
    "an abort on Windows": ("Process finished with exit code -1073740791 (0xC0000409)", UNKNOWN, {}),
    "an access violation": ("Process finished with exit code -1073741819 (0xC0000005)", UNKNOWN, {}),
    "HDF5's header": ("RuntimeError: Unable to create attribute (object header message is too large)", UNKNOWN, {}),
    "code that speaks of it": ("    except RuntimeError as e:\n        if 'out of memory' in str(e):", UNKNOWN, {}),
    "advice that speaks of it": ("Reduce the batch size if you run out of memory.", UNKNOWN, {}),
    "memory that is reported": ("GPU memory used: 3.1 GB of 16 GB", UNKNOWN, {}),
}
FAMILIES = DEVICES | KERNELS | HOSTS | ENDED | CONSTANTS | OTHERWISE


@pytest.mark.parametrize(("text", "cause", "numbers"), FAMILIES.values(), ids=FAMILIES)
def test_a_family_is_heard(text, cause, numbers):
    found = legroom.explain(text + "\n")
    assert found.cause == cause, found.causes
    assert {name: getattr(found, name) for name in numbers} == numbers


@pytest.mark.parametrize(("text", "cause", "numbers"), FAMILIES.values(), ids=FAMILIES)
def test_a_family_is_heard_in_the_midst_of_a_large_log(text, cause, numbers, monkeypatch):
    """Beyond the first megabytes most of a log is passed over; what a reader knows is not."""
    monkeypatch.setattr(lines, "WHOLE_BYTES", 0)
    noise = "iteration loss 0.1234 accuracy 0.9876\n" * 8000
    assert legroom.explain(f"{noise}{text}\n{noise}").cause == cause


WORDS = (  # of programs that have no reader of their own, and others that sound like them
    ("[ERROR] OutOfMemory: GPU 0 memory exhausted", BATCH),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", START),
    (
        "terminate called after throwing an instance of 'thrust::system::detail::bad_alloc'\n  what():  std::bad_alloc: cudaErrorMemoryAllocation: out of memory",
        BATCH,
    ),
    (
        "xgboost.core.XGBoostError: Memory allocation error on worker 0: std::bad_alloc: cudaErrorMemoryAllocation: out of memory\n- Free memory: 12345\n- Requested memory: 456789",
        BATCH,
    ),
    ("lightgbm.basic.LightGBMError: bad allocation", OTHER),
    ("g++: fatal error: Killed signal terminated program cc1plus", OTHER),
    ("c++: internal compiler error: Killed (program cc1plus)", OTHER),
    ("cc1plus: out of memory allocating 65536 bytes after a total of 123456 bytes", OTHER),
    ("virtual memory exhausted: Cannot allocate memory", OTHER),
    ("ld: final link failed: memory exhausted", OTHER),
    ("collect2: fatal error: ld terminated with signal 9 [Killed]", OTHER),
    ("[CRITICAL] Worker (pid:123) was sent SIGKILL! Perhaps out of memory?", OTHER),
    ("billiard.exceptions.WorkerLostError: Worker exited prematurely: signal 9 (SIGKILL) Job: 0.", OTHER),
    ("traceback : Signal 9 (SIGKILL) received by PID 12345", OTHER),
    ("mpirun noticed that process rank 0 with PID 123 on node x exited on signal 9 (Killed).", OTHER),
    ("=   KILLED BY SIGNAL: 9 (Killed)", OTHER),
    ("Failed to initialize GPU device #0: out of memory", SHARED),
    ("Error: CUDA context creation failed: out of memory", SHARED),
    (
        "W tensorflow/core/framework/op_kernel.cc:1502] OP_REQUIRES failed at conv_ops.cc:539 : Resource exhausted: ",
        BATCH,
    ),
    ("tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:", BATCH),
    ("tcmalloc: allocation failed 8192", OTHER),
    (
        "could not synchronize on CUDA context: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered",
        UNKNOWN,
    ),
    ("Error: Failed to allocate memory for tensor", BATCH),
    ("Paddle: Fail to alloc memory of 1234567 size, error code is 12.", OTHER),
    ("CUDA Error: out of memory: File exists", BATCH),
    ("ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.", UNKNOWN),
    ("ImportError: /lib/libgomp.so.1: cannot allocate memory in static TLS block", UNKNOWN),
    ("RuntimeError: 显存不足", BATCH),
    ("错误：内存不足", OTHER),
    ("OSError: 页面文件太小，无法完成操作。", OTHER),
    ("Killed: 9", OTHER),
    ("Убито", OTHER),
    ("./run.sh: line 3:  4567 Убито                 python train.py", OTHER),
    ("fish: Job 1, 'python train.py' terminated by signal SIGKILL (Forced quit)", OTHER),
    ("0/3 nodes are available: 3 Insufficient memory.", OTHER),
    ("RuntimeError: not enough GPU memory to load the model", BATCH),
    ("ERROR: GPU memory is full", BATCH),
    ("Error: Cannot allocate 3.5 GiB on GPU", BATCH),
    ("RuntimeError: Failed to allocate 2147483648 bytes on device", BATCH),
    (
        "torch.cuda.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\nCurrently allocated     : 9.50 GiB\nRequested               : 1.00 GiB\nDevice limit            : 12.00 GiB\nFree (according to CUDA): 20.81 MiB\nPyTorch limit (set by user-supplied memory fraction)\n                        : 17179869184.00 GiB",
        BATCH,
    ),
    ("Fatal error: Out of memory", OTHER),
    (
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 29.8 GiB for an array with shape (4000000000,) and data type float64",
        OTHER,
    ),
    ("cupy_backends.cuda.api.runtime.CUDARuntimeError: cudaErrorMemoryAllocation: out of memory", BATCH),
    ("hipErrorOutOfMemory (error code 2) on hipMalloc", BATCH),
    (
        "E1234 failed to allocate 12.00G (12884901888 bytes) from device: RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        SHARED,
    ),
    (
        "E0000 00:00:1740 cuda_dnn.cc:522] Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0.",
        UNKNOWN,
    ),
    ("RuntimeError: DataLoader worker (pid 1234) is killed by signal: Segmentation fault.", UNKNOWN),
    ("RuntimeError: DataLoader worker (pid(s) 1234) exited unexpectedly", UNKNOWN),
    ("oom-killer: gfp_mask=0x100cca", OTHER),
    ("Memory usage: 95% - WARNING high memory", UNKNOWN),
    ("error: rpc failed: RESOURCE_EXHAUSTED: Attempted to send message of size 5000000 which exceeds limit", UNKNOWN),
    ("openai.RateLimitError: Error code: 429 - insufficient_quota", UNKNOWN),
    ("Not enough disk space", UNKNOWN),
    (
        "XlaRuntimeError: INTERNAL: Failed to execute XLA Runtime executable: run time error: custom call 'xla.gpu.graph.launch' failed: Failed to instantiate gpu graph: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        SHARED,
    ),
    ("XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate 8589934592 bytes for new constant", BATCH),
    ("RuntimeError: Unknown: CUDNN_STATUS_EXECUTION_FAILED", UNKNOWN),
    ("GPU 0: ran out of VRAM", BATCH),
    (
        "W tensorflow/core/kernels/gpu_utils.cc:49] Failed to allocate memory for convolution redzone checking; skipping this check. This is benign and only means that we won't check cudnn for out-of-bounds reads and writes. This message will only be printed once.",
        NONE,
    ),
    (
        "W tensorflow/core/common_runtime/bfc_allocator.cc:456] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.24GiB (rounded to 2405181696)requested by op",
        BATCH,
    ),
    ("Convolution performance may be suboptimal. Cannot allocate scratch space of size 1000000", NONE),
)


@pytest.mark.parametrize(("text", "cause"), WORDS)
def test_words_that_no_reader_knows(text, cause):
    assert legroom.explain(text + "\n").cause == cause


TENSOR = "OOM when allocating tensor with shape[{}] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
ROLES = {
    "an initializer": ("1024,4096", "{{node lstm/recurrent_kernel/Initializer/random_uniform/mul}}", WEIGHTS),
    "an initializer, eagerly": ("4096,4096", "[Op:TruncatedNormal]", WEIGHTS),
    "an initializer without a state of its own": ("3000,4096", "[Op:StatelessRandomUniformV2]", WEIGHTS),
    "an initializer by its name": ("300,4096", "[Op:Mul] name: dense/kernel/Initializer/random_uniform/mul", WEIGHTS),
    "a slot": ("512,2048", "{{node training/Adam/zeros_12}}", WEIGHTS),
    "a slot by its variable": ("3,3,512,512", "{{node conv2d_5/kernel/Adam}}", WEIGHTS),
    "an update": ("512,2048", "{{node Adam/update_dense/kernel/ApplyAdam}}", WEIGHTS),
    "an update, eagerly": ("30522,768", "[Op:ResourceApplyAdam]", WEIGHTS),
    "what is restored": ("512,2048", "{{node save/RestoreV2_7}}", WEIGHTS),
    "what is assigned": ("512", "{{node save/Assign_12}}", WEIGHTS),
    "a regularizer": ("25088,4096", "{{node dense/kernel/Regularizer/Square}}", WEIGHTS),
    "the gradient of a dense kernel": ("512,4096", "{{node gradients/dense/MatMul_grad/MatMul_1}}", WEIGHTS),
    "the same in TensorFlow 2": ("512,4096", "{{node gradient_tape/model/dense/MatMul/MatMul_1}}", WEIGHTS),
    "the gradient of a convolution's kernel": (
        "3,3,512,512",
        "{{node gradients/conv5/Conv2D_grad/Conv2DBackpropFilter}}",
        WEIGHTS,
    ),
    "the gradient of an embedding": ("100000,300", "{{node gradients/embedding_lookup_grad/Reshape}}", WEIGHTS),
    "a kernel that enlarges": ("4,4,512,256", "{{node gradients/AddN_4}}", WEIGHTS),
    "a kernel that was taken apart": ("1,7,192,192", "{{node clip_by_global_norm/mul_5}}", WEIGHTS),
    "what a dense layer puts out": ("16384,768", "{{node bert/encoder/layer_3/intermediate/dense/MatMul}}", BATCH),
    "what is added to it": ("16384,768", "{{node bert/encoder/layer_3/intermediate/dense/BiasAdd}}", BATCH),
    "logits": ("8192,30522", "{{node softmax_cross_entropy_with_logits/Reshape_2}}", BATCH),
    "the gradient of what a layer was given": ("20000,2048", "{{node gradients/dense/MatMul_grad/MatMul}}", BATCH),
    "dropout": ("20000,512", "{{node dropout_3/dropout/random_uniform/RandomUniform}}", BATCH),
    "a step of a loop": ("20000,512", "{{node rnn/while/TensorArrayReadV3}}", BATCH),
    "rows of an embedding": ("40000,300", "{{node embedding_lookup/Identity}}", BATCH),
    "a convolution's input, turned around": (
        "64,128,112,112",
        "{{node gradients/conv5/Conv2D_grad/Conv2DBackpropFilter}}",
        BATCH,
    ),
    "a picture of one example": ("1,3,2048,2048", "", BATCH),
    "nothing but a shape": ("32,112,112,64", "", BATCH),
}


@pytest.mark.parametrize(("shape", "where", "cause"), ROLES.values(), ids=ROLES)
def test_weights_are_told_from_activations(shape, where, cause):
    found = legroom.explain(f"{TENSOR.format(shape)} {where}\n")
    assert found.cause == cause, found.causes


def test_a_batch_size_that_the_log_names():
    text = f"Namespace(batch_size=8192, lr=0.1)\n{TENSOR.format('8192,4096')}\n"
    assert legroom.explain(text).cause == BATCH


FRAMES = {
    "a layer that is built when it is first called": (("fit", "__call__", "build", "add_weight", "__call__"), WEIGHTS),
    "an optimizer's slots": (("train_step", "minimize", "apply_gradients", "_create_slots"), WEIGHTS),
    "PyTorch's optimizer": (("train", "step", "adamw", "_multi_tensor_adamw"), WEIGHTS),
    "a step": (("fit", "train_function", "quick_execute"), BATCH),
}


@pytest.mark.parametrize(("frames", "cause"), FRAMES.values(), ids=FRAMES)
def test_the_way_to_an_error(frames, cause):
    way = "".join(f'  File "site-packages/keras/x.py", line 9, in {name}\n' for name in frames)
    text = f"Traceback (most recent call last):\n{way}ResourceExhaustedError: failed to allocate memory [Op:Mul]\n"
    assert legroom.explain(text).cause == cause


BUDGET = """\
W external/xla/xla/tsl/framework/bfc_allocator.cc:501] Allocator (GPU_0_bfc) ran out of memory trying to allocate 64.00MiB (rounded to 67108864)requested by op
I external/xla/xla/tsl/framework/bfc_allocator.cc:1140] Sum Total of in-use chunks: 1.95GiB
I external/xla/xla/tsl/framework/bfc_allocator.cc:1149] Stats:
Limit:                      2147483648
InUse:                      2097152000
MaxInUse:                   2097152000
NumAllocs:                         120
MaxAllocSize:                134217728
XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 67108864 bytes.
"""


def test_a_pool_that_was_made_small_is_not_held_by_others():
    """With XLA_PYTHON_CLIENT_MEM_FRACTION a process may use little of a large card, and fills that itself."""
    found = legroom.explain(BUDGET)
    assert found.cause == BATCH
    assert SHARED not in [cause.cause for cause in found.causes]


def test_a_small_request_alone_is_no_sign_of_others():
    found = legroom.explain("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 67108864 bytes.\n")
    assert found.cause == BATCH


def test_words_count_only_where_nothing_else_is_known():
    text = "I think that it is out of GPU memory:\nE cuda_dnn.cc:329] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR\n"
    assert legroom.explain(text).cause == START


GROWTH = {
    "by much, with ups and downs": ([555, 655, 668, 698, 714, 730, 720, 763, 752, 790], LEAK),
    "by little, in every step": ([839 + 4 * step for step in range(10)], LEAK),
    "not at all": ([1000 + 37 * step % 23 for step in range(30)], UNKNOWN),
    "up and down again": ([500, 900, 950, 960, 700, 520], UNKNOWN),
}


@pytest.mark.parametrize(("sizes", "cause"), GROWTH.values(), ids=GROWTH)
def test_sizes_that_a_run_prints_without_an_error(sizes, cause):
    text = "".join(
        f"run {number} of the loop: current memory usage: {size}.25 MB\n" for number, size in enumerate(sizes)
    )
    assert legroom.explain(text).cause == cause


def frames(*names):
    return "".join(f'  File "site-packages/tensorflow/python/ops/x.py", line 9, in {name}\n' for name in names)


DEFINED = {
    "a variable": ("Variable_10/initial_value", ("__init__", "_init_from_args", "constant"), WEIGHTS),
    "an update": ("training/Adam/mul_49", ("fit", "_make_train_function", "get_updates"), WEIGHTS),
    "a gradient, which Keras defines there, too": (
        "training/Adam/gradients/conv/convolution_grad/Conv2DBackpropInput",
        ("fit", "get_updates", "get_gradients", "gradients"),
        BATCH,
    ),
    "a layer": ("conv1/Relu", ("main", "build_model", "relu"), BATCH),
}


@pytest.mark.parametrize(("op", "names", "cause"), DEFINED.values(), ids=DEFINED)
def test_where_an_operation_was_defined(op, names, cause):
    text = f"InternalError: Dst tensor is not initialized.\n\t [[Node: {op} = X[]()]]\n\nCaused by op '{op}', defined at:\n{frames(*names)}"
    assert legroom.explain(text).cause == cause


def test_an_evaluation_behind_the_training_is_no_leak():
    epochs = "".join(f"Epoch: {number:04} cost= 19.5\n" for number in range(1, 26))
    way = "Traceback (most recent call last):\n" + frames("<module>", "eval", "run")
    text = f"{epochs}Optimization Finished!\n{way}InternalError: Dst tensor is not initialized.\n"
    assert legroom.explain(text).cause == BATCH


def test_an_algorithm_picker_that_had_no_room():
    text = "W gemm_fusion_autotuner.cc:1000] Falling back: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1234567890 bytes.\n"
    assert legroom.explain(text).cause == WORKSPACE


LIKE_IT = (
    "WARNING:tensorflow:Your input ran out of data; interrupting training.",
    "OutOfRangeError: RandomShuffleQueue '_1_shuffle_batch' is closed and has insufficient elements (requested 32, current size 0)",
    "Local rendezvous is aborting with status: OUT_OF_RANGE: End of sequence",
    "IndexError: list index out of range",
    "ValueError: Memory growth cannot differ between GPU devices",
    "The GPU needs more than 2GB of memory",
)


@pytest.mark.parametrize("text", LIKE_IT)
def test_what_only_sounds_like_it(text):
    assert legroom.explain(text + "\n").cause == UNKNOWN


CONSTANT_OF_800 = "Allocator (GPU_0_bfc) ran out of memory trying to allocate 800.00MiB (rounded to 838860800)requested by op _EagerConst\n"
COPY = "InternalError: Dst tensor is not initialized.\n"
ACTIVATION = "OOM when allocating tensor with shape[24,112,112,96] and type float by allocator GPU_0_bfc\n"
REFUSALS = {
    "as much again and again": ([6000, 6000, 6000], CONSTANT_OF_800, SHARED),
    "the same before a copy": ([6000, 6000, 6000], COPY, SHARED),
    "less and less, down to what was needed": ([2400, 2160, 1944, 1750, 1575, 1417, 1275, 1148, 1033, 930, 837], CONSTANT_OF_800, SHARED),
    "less and less, until it was given": ([6000, 5400, 4860], CONSTANT_OF_800, BATCH),
    "the rest of a pool that was given": ([6000, 1500, 1500], CONSTANT_OF_800, BATCH),
    "little more than was needed": ([1500, 1500], CONSTANT_OF_800, BATCH),
    "an activation in the end": ([6000, 6000, 6000], ACTIVATION, BATCH),
}  # fmt: skip


@pytest.mark.parametrize(("refused", "failed", "cause"), REFUSALS.values(), ids=REFUSALS)
def test_what_the_driver_never_gave(refused, failed, cause):
    lines = [
        f"failed to allocate {size}M ({size * MIB} bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
        for size in refused
    ]
    assert legroom.explain("".join(lines) + failed).cause == cause


REFUSED_NOW = "E0101 00:00:01.000001 11 cuda_executor.cc:1365] [0] Failed to allocate device memory of 1.25GiB (1342177280 bytes): RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory\n"
HELD = "Stats:\nLimit: 10737418240\nInUse: {held}\n"


@pytest.mark.parametrize(("held", "cause"), [(100 << 20, SHARED), (10140 << 20, BATCH)])
def test_no_card_is_as_small_as_what_was_refused_and_held(held, cause):
    failed = "ran out of memory trying to allocate 1.00GiB (rounded to 1073741824)requested by op Relu\n"
    text = f"{REFUSED_NOW * 2}Allocator (GPU_0_bfc) {failed}{HELD.format(held=held)}"
    assert legroom.explain(text).cause == cause
