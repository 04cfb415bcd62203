"""Compiles the kernels in C++ of this folder and of the benches to `ptx/`, with this Python's NVRTC.

    python build_ptx.py            writes every ptx/<name>.ptx
    python build_ptx.py --check    writes nothing, and fails if a file differs from what its source compiles to

`cargo xtask ptx` runs this script with the pinned version of NVRTC, and rustc for `ptx/kernels.ptx`.
"""

import ctypes
import importlib.metadata
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOLDERS = [HERE, ROOT / "benches" / "kernels"]
# The PTX of the kernels in Rust.
RUST = HERE / "ptx" / "kernels.ptx"
HEADERS = [ROOT / "interop-core" / "include" / "interop.cuh", HERE / "elements.cuh"]
PACKAGE = "nvidia-cuda-nvrtc-cu12"
# CUDA 13's drivers accept older targets, but this one has independent thread scheduling and every feature that the
# kernels use.
OPTIONS = ["--gpu-architecture=compute_70", "--std=c++17"]
HEAD = (".version 8.2\n", ".target sm_70\n")


def library():
    """Loads NVRTC from the installed wheel, even if a CUDA toolkit is installed too."""
    names = ("libnvrtc.so", "nvrtc64_")
    for file in importlib.metadata.files(PACKAGE) or ():
        if file.name.startswith(names) and "builtins" not in file.name and "alt" not in file.name:
            return ctypes.CDLL(str(file.locate()))
    sys.exit(f"{PACKAGE} is installed without its library")


class Nvrtc:
    """The NVRTC calls that compile one source. Any result other than success ends the script."""

    def __init__(self):
        self.library = library()
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        return None if code == 0 else self.library.nvrtcGetErrorString(code).decode()

    def must(self, name, *arguments):
        error = self.call(name, *arguments)
        if error is not None:
            sys.exit(f"{name}: {error}")

    def text(self, program, what):
        size = ctypes.c_size_t()
        self.must(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.must(f"nvrtcGet{what}", program, buffer)
        return buffer.value.decode()

    def compile(self, source):
        """Returns the PTX of a source file."""
        program = ctypes.c_void_p()
        texts = strings([header.read_text(encoding="utf-8") for header in HEADERS])
        names = strings([header.name for header in HEADERS])
        code = source.read_text(encoding="utf-8").encode()
        self.must("nvrtcCreateProgram", ctypes.byref(program), code, source.name.encode(), len(HEADERS), texts, names)
        error = self.call("nvrtcCompileProgram", program, len(OPTIONS), strings(OPTIONS))
        log = self.text(program, "ProgramLog").strip()
        # Warnings are errors, because nobody would see them until the source changes again.
        if error is not None or log:
            sys.exit(f"{source.name}: {error or 'compiled with warnings'}\n{log}")
        ptx = self.text(program, "PTX")
        self.must("nvrtcDestroyProgram", ctypes.byref(program))
        return ptx


def strings(items):
    return (ctypes.c_char_p * len(items))(*(item.encode() for item in items))


def place(source):
    """Returns the path of the PTX of a source file."""
    return source.parent / "ptx" / f"{source.stem}.ptx"


def main(arguments):
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    check = arguments == ["--check"]
    nvrtc = Nvrtc()
    sources = [source for folder in FOLDERS for source in sorted(folder.glob("*.cu"))]
    written = {file for folder in FOLDERS for file in folder.glob("ptx/*.ptx")} - {RUST}
    wrong = sorted(written - {place(source) for source in sources})
    wrong = [f"{file} has no source" for file in wrong]
    for source in sources:
        ptx = nvrtc.compile(source)
        if not all(line in ptx for line in HEAD):
            wrong.append(f"{source.name} does not compile to{' and'.join(HEAD)}".replace("\n", ""))
        file = place(source)
        if not check:
            file.write_text(ptx, encoding="utf-8", newline="\n")
        elif not file.exists() or file.read_text(encoding="utf-8") != ptx:
            wrong.append(f"ptx/{file.name} is not what {source.name} compiles to")
        print(f"{source.name:<16}{ptx.count('.entry '):>4} kernels")
    if wrong:
        sys.exit("\n".join([*wrong, "`cargo xtask ptx` writes these files anew"]))


if __name__ == "__main__":
    main(sys.argv[1:])
