# Prepare a bare GPU machine (JAX and CUDA 13 there, no network) from wheels carried in the folder $1: source it.
# Wheels of Keras and of TensorFlow's small dependencies in $1; TensorFlow's own wheel, when joined, as $1/tensorflow.whl.
lib=${LEGROOM_DEVICE_LIB:-/tmp/legroom-device}
mkdir -p "$lib/py" "$lib/so"
for wheel in "$1"/*.whl; do python3 -m zipfile -e "$wheel" "$lib/py"; done
cuda=$(ls -d /usr/local/cuda-13* /usr/local/cuda 2>/dev/null | head -1)
find13() { find / -name "$1" -not -path '/proc/*' 2>/dev/null | head -1; }
ln -sf "$lib/py/nvidia/cuda_runtime/lib/libcudart.so.12" "$lib/so/libcudart.so.12"
ln -sf "$(find13 'libcublas.so.13')" "$lib/so/libcublas.so.12"
ln -sf "$(find13 'libcublasLt.so.13')" "$lib/so/libcublasLt.so.12"
ln -sf "$(find13 'libcufft.so.12')" "$lib/so/libcufft.so.11"
ln -sf "$(find13 'libcusolver.so.12')" "$lib/so/libcusolver.so.11"
ln -sf "$(find13 'libcusparse.so.12')" "$lib/so/libcusparse.so.12"
cudnn=$(dirname "$(find13 'libcudnn.so.9')")
cublas=$(dirname "$(find13 'libcublas.so.13')")
cat > "$lib/tf.env" <<ENV
export PYTHONPATH=$lib/py
export LD_LIBRARY_PATH=$lib/so:$cublas:$cudnn:$cuda/lib64:\$LD_LIBRARY_PATH
export XLA_FLAGS=--xla_gpu_cuda_data_dir=$cuda
ENV
