"""Compiles the kernels in C++ with this Python's NVRTC: those of this folder to `ptx/`, those of the benches to `target/twins/`.

    python build_ptx.py            writes every <name>.ptx
    python build_ptx.py --check    writes nothing, and fails if a file of `ptx/` differs from what its source compiles to

`cargo xtask ptx` runs this script with the pinned version of NVRTC, and rustc for `ptx/kernels.ptx`.
"""

import ctypes
import importlib.metadata
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FOLDERS = {HERE: HERE / "ptx", ROOT / "tests" / "benches" / "kernels": ROOT / "target" / "twins"}
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


def main(arguments):
    if arguments not in ([], ["--check"]):
        sys.exit(__doc__)
    check = arguments == ["--check"]
    nvrtc = Nvrtc()
    places = {source: to / f"{source.stem}.ptx" for folder, to in FOLDERS.items() for source in sorted(folder.glob("*.cu"))}
    written = set((HERE / "ptx").glob("*.ptx")) - {RUST}
    wrong = [f"{file} has no source" for file in sorted(written - set(places.values()))]
    for source, file in places.items():
        ptx = nvrtc.compile(source)
        if not all(line in ptx for line in HEAD):
            wrong.append(f"{source.name} does not compile to{' and'.join(HEAD)}".replace("\n", ""))
        if not check:
            file.parent.mkdir(exist_ok=True, parents=True)
            file.write_text(ptx, encoding="utf-8", newline="\n")
        elif file.parent == HERE / "ptx" and (not file.exists() or file.read_text(encoding="utf-8") != ptx):
            wrong.append(f"ptx/{file.name} is not what {source.name} compiles to")
        print(f"{source.name:<16}{ptx.count('.entry '):>4} kernels")
    if wrong:
        sys.exit("\n".join([*wrong, "`cargo xtask ptx` writes these files anew"]))


if __name__ == "__main__":
    main(sys.argv[1:])
