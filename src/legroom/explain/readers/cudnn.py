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
        b"GEMM launch failed",
        b"initialize cublas",
    ),
    *(b"insufficient driver version", b"CUDNN_STATUS_VERSION_MISMATCH", b"without DNN support", b"cudnnCreate"),
)
OTHERWISE = re.compile(
    r"Loaded runtime CuDNN library: [\d.]{1,20} but source was compiled|insufficient driver version|VERSION_MISMATCH|DNN library is not found|ARCH_MISMATCH"
)
WORKSPACE = re.compile(r"CUDNN_STATUS_ALLOC_FAILED|CUBLAS_STATUS_ALLOC_FAILED")
STARTS = re.compile(
    r"create cud?nn handle|create cublas handle|cuDNN failed to initialize|DNN library initialization failed|without (?:BLAS|DNN) support"
    r"|GEMM launch failed|initialize cublas|get convolution algorithm|CU(?:DNN|BLAS)_STATUS_NOT_INITIALIZED|CUDNN_STATUS_INTERNAL_ERROR|cudnnCreate"
)


def read(text: str) -> Iterator[tuple[str, Any]]:
    if OTHERWISE.search(text):
        yield "wrong_library", None
    elif STARTS.search(text):
        yield "cudnn", None
    elif WORKSPACE.search(text):
        yield "cudnn_workspace", None
