"""`examples/new_project.py` makes projects of the templates beside it, as `cargo generate` runs it."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = ["hello-python", "hello-cuda", "hello-functions"]


def run(folder, *arguments):
    script = folder.parent / "new_project.py"
    return subprocess.run([sys.executable, script, *arguments], cwd=folder, capture_output=True, text=True)


@pytest.fixture(params=TEMPLATES)
def copy(request, tmp_path):
    """As `cargo generate --path examples TEMPLATE` copies it: with what is beside it."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("target", "__pycache__"))
    return tmp_path / "examples" / request.param


def test_a_copy_becomes_a_project(copy):
    config = tomllib.loads((copy.parent / "cargo-generate.toml").read_text())
    (hook,) = config["hooks"]["post"]
    command = re.search(r'system::command\("python3", \["(.*?)"', (copy / hook).read_text())[1]
    assert (copy / command).samefile(copy.parent / "new_project.py")
    result = run(copy, "wave-maker", ROOT)
    assert result.returncode == 0, result.stderr
    files = [path for path in copy.rglob("*") if path.is_file()]
    texts = {path: path.read_text() for path in files}
    names = (copy.name, copy.name.replace("-", "_"))
    assert [path for path, text in texts.items() if any(name in text or name in path.name for name in names)] == []
    manifests = [tomllib.loads(text) for path, text in texts.items() if path.name == "Cargo.toml"]
    assert "wave-maker" in [manifest["package"]["name"] for manifest in manifests]
    sources = [value["path"] for manifest in manifests for key, value in manifest["dependencies"].items() if key.startswith("interop-")]
    assert sources and all(Path(source).is_relative_to(ROOT) and (Path(source) / "Cargo.toml").exists() for source in sources)


def test_what_is_no_copy_is_left_as_it_is(copy):
    """The folder `xtask` says that this is the repository itself."""
    before = (copy / "Cargo.toml").read_text()
    repository = copy.parent.parent / "xtask"
    repository.mkdir()
    for arguments, why in [
        (("waves", ROOT), "is no copy of a template"),
        (("waves", copy), "is not there: INTEROP is"),
        (("Waves", ROOT), "a name has lower-case letters"),
        (("waves",), "NAME replaces"),
    ]:
        result = run(copy, *arguments)
        assert result.returncode == 1 and why in result.stderr, result.stderr
        assert (copy / "Cargo.toml").read_text() == before
    repository.rmdir()
    assert run(copy, "waves", "1.2").returncode == 0
    assert 'version = "1.2"' in (copy / "Cargo.toml").read_text()
