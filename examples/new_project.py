"""Makes a project of a copy of `hello-python`, `hello-cuda` or `hello-functions`. Run it in the copy, as `new_project.py NAME INTEROP`.

NAME replaces the template's name in all files. INTEROP is where the crates of interop come from: the folder of a checkout, the
address of a git repository, or a version on crates.io. `cargo generate` runs this file.
"""

import re
import sys
from pathlib import Path

HERE = Path.cwd()


def source(crate, interop):
    """The value of a dependency: where the crate comes from."""
    if "://" in interop:
        return f'git = "{interop}"'
    if re.fullmatch(r"\d+(\.\d+)*", interop):
        return f'version = "{interop}"'
    folder = Path(interop).expanduser().resolve() / crate
    if not folder.is_dir():
        sys.exit(f"{folder} is not there: INTEROP is a checkout's folder, the address of a git repository, or a version")
    return f"path = '{folder}'"


def files():
    for path in sorted(HERE.rglob("*"), reverse=True):
        if not {"target", ".git", ".venv", "__pycache__"} & set(path.relative_to(HERE).parts):
            yield path


def main(name, interop):
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        sys.exit(f"{name}: a name has lower-case letters, digits and hyphens, such as `my-arrays`")
    source("interop-core", interop)  # Ends here if that is wrong.
    if not (HERE / "Cargo.toml").is_file() or (HERE.parent.parent / "xtask").is_dir():
        sys.exit(f"{HERE} is no copy of a template: copy the folder of one, and run this program there")
    old = re.search(r'^name = "(.*)"', (HERE / "Cargo.toml").read_text(encoding="utf-8"), flags=re.M)[1]

    def renamed(text):
        return text.replace(old, name).replace(old.replace("-", "_"), name.replace("-", "_"))

    for path in files():
        if path.is_file():
            text = renamed(path.read_text(encoding="utf-8"))
            if path.name == "Cargo.toml":
                text = re.sub(r"^# In a copy .*\n", "", text, flags=re.M)
                text = re.sub(r'path = "(?:\.\./)+([a-z-]+)"', lambda found: source(found[1], interop), text)
            path.write_text(text, encoding="utf-8", newline="\n")
        if renamed(path.name) != path.name:
            path.rename(path.with_name(renamed(path.name)))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
