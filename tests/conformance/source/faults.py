"""The first public report of each fault behind the cases, by id."""

# One row per line is easier to read.
# fmt: off

SEEN = {
    name: f"https://github.com/{place.replace('#', '/issues/')}"
    for name, place in {
        "B1": "NVIDIA/DALI#5423", "B2": "numba/numba/pull/5162", "B8": "NVIDIA/cuda-python#285", "B12": "dmlc/xgboost#6753",
        "B13": "NVIDIA/DALI/pull/2050", "B24": "pytorch/pytorch#43166", "B25": "pytorch/pytorch#117273",
        "B40": "wjakob/nanobind/pull/1299", "B62": "NVIDIA/warp#523", "B64": "cupy/cupy#2873", "B65": "cupy/cupy#2259",
        "B66": "cupy/cupy#2462", "B67": "cupy/cupy#2589", "B68": "cupy/cupy#2095", "B69": "dmlc/dlpack/pull/178",
        "B72": "pytorch/pytorch#82610", "B73": "pytorch/pytorch#83069", "B74": "tensorflow/tensorflow/pull/61184",
        "B75": "numpy/numpy#20336", "B76": "wjakob/nanobind/pull/162", "B77": "cupy/cupy#2610", "B78": "cupy/cupy#2789",
        "B79": "apache/arrow/pull/38472", "B80": "numpy/numpy/pull/29872", "B81": "pytorch/pytorch#188023",
        "B83": "numpy/numpy#23349", "B84": "cupy/cupy/commit/0744eee5a", "B85": "NVIDIA/cuda-python#2592",
        "B86": "data-apis/array-api#293", "B87": "dmlc/dlpack#99", "B89": "NVIDIA/warp#1703",
        "B90": "tensor4all/tenferro-rs#474", "B91": "microsoft/onnxruntime/pull/19330", "B92": "pytorch/pytorch/pull/24947",
        "B93": "NVIDIA/cuml#2273", "B95": "numba/numba#3334", "B98": "cupy/cupy#8801", "B99": "dmlc/dlpack#75",
        "B101": "pytorch/pytorch/pull/129621", "B102": "cupy/cupy#9480", "B103": "numpy/numpy/pull/31256",
        "B104": "pytorch/pytorch/pull/11984", "B105": "NVIDIA/cudf/pull/11113", "B108": "microsoft/onnxruntime#24095",
        "B109": "wjakob/nanobind/commit/d66eae7e", "B114": "NVIDIA/cuda-python#715", "B116": "pytorch/pytorch#96318",
        "B117": "jax-ml/jax#22346", "B119": "neka-nat/cupoch#28", "B120": "OpenNMT/CTranslate2#1467",
        "B127": "data-apis/array-api-strict#99", "B130": "jax-ml/jax#28815", "B131": "numpy/numpy#20742",
        "B133": "jax-ml/jax#40789", "B140": "cupy/cupy/commit/0744eee5a", "B147": "pytorch/pytorch/pull/150218",
        "B155": "NVIDIA/cudf/pull/2464", "B161": "NVIDIA/cudf#2690", "B165": "tensorflow/tensorflow/pull/116201",
        "B166": "cupy/cupy/pull/3015", "B167": "NVIDIA/warp#1120", "B168": "apache/arrow/pull/51122",
        "B169": "numpy/numpy/pull/19083", "B170": "jax-ml/jax/pull/37303", "B172": "wjakob/nanobind/commit/4bfeca03",
        "B173": "rapidsai/ucx-py/pull/546",
    }.items()
}
