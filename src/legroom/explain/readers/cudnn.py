"""cuDNN and cuBLAS that cannot start, mostly because the pool has left them no memory; and the versions that do not match."""

import re
from collections.abc import Iterator
from typing import Any

STRONG = (
    *(b"create cudnn handle", b"cuDNN failed to initialize", b"DNN library", b"CUDNN_STATUS_NOT_INITIALIZED"),
    *(
        b"CUDNN_STATUS_ALLOC_FAILED",
        b"CUDNN_STATUS_INTERNAL_ERROR",
        b"create cublas handle",
        b"CUBLAS_STATUS_NOT_INITIALIZED",
    ),
    *(
        b"CUBLAS_STATUS_ALLOC_FAILED",
        b"get convolution algorithm",
        b"CuDNN library",
        b"without BLAS support",
        b"launch failed",
        b"DNN launch failure",
        b"initialize cublas",
    ),
    *(
        b"_ALLOC_FAILED",
        b"LLOCATION_FAILED",
        b"cuFFT batched plan",
        b"cuSolverDN call",
        b"CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
    ),
    *(
        b"rocblas_status_memory_error",
        b"miopenStatusAllocFailed",
        b"Create(&handle) failed",
        b"cusolverDnCreate",
        b"cublasCreate",
    ),
    *(b"insufficient driver version", b"CUDNN_STATUS_VERSION_MISMATCH", b"without DNN support", b"cudnnCreate"),
)
OTHERWISE = re.compile(
    r"Loaded runtime CuDNN library: [\d.]{1,20} (?:\([\w .]{1,60}\) )?but source was compiled|insufficient driver version|VERSION_MISMATCH|DNN library is not found|ARCH_MISMATCH"
)
WORKSPACE = re.compile(
    r"(?:CUDNN|CUBLAS|CUSOLVER|CUSPARSE|HIPBLAS|HIPSPARSE)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED|HIPFFT_ALLOC_FAILED|cuFFT batched plan: ?2\b"
    r"|cuSolverDN call failed with status ?=2|CURAND_STATUS_ALLOCATION_FAILED|CUSPARSE_STATUS_INSUFFICIENT_RESOURCES|rocblas_status_memory_error"
    r"|miopenStatusAllocFailed|DEVICE_ALLOCATION_FAILED"
)
STARTS = re.compile(
    r"create cud?nn handle|create cublas handle|cuDNN failed to initialize|DNN library initialization failed|without (?:BLAS|DNN) support"
    r"|GEM[MV]\w{0,20} launch failed|[Dd][Nn][Nn] (?:Pool\w{3,12} )?launch fail|initialize cublas|get convolution algorithm|CU(?:DNN|BLAS)_STATUS_NOT_INITIALIZED|CUDNN_STATUS_INTERNAL_ERROR|cudnnCreate"
    r"|\w{2,24}Create\w{0,12}\(&handle\) failed|CUSOLVER_STATUS_NOT_INITIALIZED|CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate"
)


def read(text: str) -> Iterator[tuple[str, Any]]:
    if OTHERWISE.search(text):
        yield "wrong_library", None
    elif "Profiling failure on" in text:  # while algorithms are tried out
        yield "cudnn_workspace", None
    elif STARTS.search(text):
        yield "cudnn", None
    elif WORKSPACE.search(text):
        yield "cudnn_workspace", None
