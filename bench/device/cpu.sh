# Prepare a bare machine (Python 3.12 and JAX there, no network) for benchmarks on its CPU: wheels lie in the folder $1, tensorflow_cpu's as $1/tensorflow.whl. Source it.
lib=${LEGROOM_DEVICE_LIB:-/tmp/legroom-device}
if [ ! -e "$lib/ready" ]; then
    mkdir -p "$lib/py"
    for wheel in "$1"/*.whl; do python3 -m zipfile -e "$wheel" "$lib/py" & done
    wait
    touch "$lib/ready"
fi
export PYTHONPATH="$PWD/src:$lib/py" CUDA_VISIBLE_DEVICES=-1 TF_CPP_MIN_LOG_LEVEL=3
