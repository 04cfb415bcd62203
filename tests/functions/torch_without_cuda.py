"""Lets the PyTorch of PyPI, which is built for CUDA, start without the libraries of CUDA: `torch_without_cuda.py FOLDER`.

Writes small libraries with their names and symbols beside those of PyTorch, where every version looks for them. Each function
fails, so PyTorch finds no GPU.
"""

import collections
import re
import subprocess
import sys
from pathlib import Path

NO_DEVICE = 100


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(packages):
    torch = packages / "torch/lib"
    # By library its versions of symbols, and by version the names.
    versions, symbols = collections.defaultdict(set), collections.defaultdict(set)
    # Not the sources of libraries that an earlier run has written.
    for library in (file for file in torch.glob("*.so*") if file.suffix not in (".c", ".map")):
        needs = output("readelf", "-WV", library)
        for name, list_of_versions in re.findall(r"File: (\S+)  Cnt.*\n((?:.*Name: .*\n)+)", needs):
            versions[name].update(re.findall(r"Name: (\S+)", list_of_versions))
        for name in re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-Wd", library)):
            versions.setdefault(name, set())
        for name, version in re.findall(r" U (\w+)(?:@(\S+))?", output("nm", "-D", "--with-symbol-versions", library)):
            symbols[version].add(name)
    for name in versions:
        if re.match("lib(cu|nccl|nvrtc|nvshmem)", name) and not name.startswith("libcuda.so") and not (torch / name).exists():
            names = [symbol for version in versions[name] for symbol in symbols[version]]
            # Without versions nobody knows which library has a symbol.
            names = names or [symbol for symbol in symbols[""] if re.match("cu|nccl", symbol)]
            compile_library(torch / name, names, versions[name])


def compile_library(path, names, versions):
    source, script = path.with_suffix(".c"), path.with_suffix(".map")
    source.write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in sorted(names)))
    script.write_text("".join(f"{version} {{ *; }};\n" for version in versions) or "{ global: *; };\n")
    linker = f"-Wl,-soname,{path.name},--version-script={script}"
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", linker, "-o", path, source], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
