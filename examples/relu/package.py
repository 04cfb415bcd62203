"""Makes the folder that `kernels.get_local_kernel` loads, and the Hub: `package.py LIBRARY FOLDER`.

The library is the same for each backend: it needs PyTorch 2.10 or newer, and no version of CUDA.
"""

import json
import platform
import shutil
import sys
from pathlib import Path

library, to = Path(sys.argv[1]), Path(sys.argv[2])
about = {"id": "relu_rust", "name": "relu-rust", "version": 1, "license": "MIT", "python-depends": []}
for backend in ("cpu", "cu120", "cu130"):
    folder = to / "build" / f"torch-stable-abi210-{backend}-{platform.machine()}-linux"
    shutil.copytree(Path(__file__).with_name("relu"), folder, dirs_exist_ok=True)
    shutil.copy(library, folder)
    about["backend"] = {"type": "cpu" if backend == "cpu" else "cuda"}
    (folder / "metadata.json").write_text(json.dumps(about))
