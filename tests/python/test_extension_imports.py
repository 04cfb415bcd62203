"""What the extension wants of the machine that loads it: no CUDA, no library of Python, and nothing newer than glibc 2.17."""

import re
import shutil
import subprocess
import sys

import interop_demo
import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not all(map(shutil.which, ("nm", "readelf"))), reason="reads an ELF file with nm and readelf"
)

LINKED = r"libc\.so\.6|libm\.so\.6|libgcc_s\.so\.1|libpthread\.so\.0|libdl\.so\.2|ld-linux.*"

# The oldest glibc of wheels with the tag `manylinux2014`.
OLDEST = (2, 17)

# Functions that glibc 2.17 has too. They have a newer version since they moved to another of its libraries (2.33, 2.34), or changed.
MOVED = """
    dlclose dlerror dlopen dlsym fstat64 hypotf lstat64 pthread_attr_getguardsize pthread_attr_getstack pthread_attr_setstacksize
    pthread_create pthread_detach pthread_getattr_np pthread_getspecific pthread_join pthread_key_create pthread_key_delete pthread_setname_np pthread_setspecific stat64
"""

# Of the names that start with an underscore, the stable interface has those that its macros use.
PRIVATE = "_Py_DecRef _Py_IncRef _Py_EllipsisObject _Py_FalseStruct _Py_TrueStruct _Py_NoneStruct _Py_NotImplementedStruct"
PRIVATE += " _PyWeakref_CallableProxyType _PyWeakref_ProxyType _PyWeakref_RefType"


def read(*command):
    return subprocess.run([*command, interop_demo.__file__], check=True, capture_output=True, text=True).stdout


def imports():
    """Yields the name of each symbol that the extension does not have, and its version. It loads without the weak ones."""
    for name, version in re.findall(r"^ +U (\w+)@?(\S*)$", read("nm", "--dynamic", "--undefined-only"), flags=re.M):
        yield name, version


def test_it_links_nothing_but_the_c_library():
    linked = re.findall(r"\(NEEDED\).*\[(.*)\]", read("readelf", "--dynamic", "--wide"))
    assert linked
    assert [name for name in linked if not re.fullmatch(LINKED, name)] == []


def test_it_runs_with_an_old_c_library():
    versions = {name: re.fullmatch(r"GLIBC_(\d+)\.(\d+).*", version) for name, version in imports()}
    assert len(versions) > 100
    newer = {name for name, version in versions.items() if version and tuple(map(int, version.groups())) > OLDEST}
    assert newer - set(MOVED.split()) == set()


def test_all_else_is_of_python_s_stable_interface():
    others = [name for name, version in imports() if not version]
    assert len(others) > 50
    assert [name for name in others if not re.match(r"Py[A-Z_]", name) and name not in PRIVATE.split()] == []
