"""The pages: they are short, each link and file that they name exists, and the plots are those of the tables."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST = 40
PAGES = [
    page
    for pattern in ("*.md", "examples/**/*.md", "inter*/**/*.md", "simulated-cuda-driver/*.md", "tests/*.md")
    for page in sorted(ROOT.glob(pattern))
    if not page.is_symlink()
]


def sentences(text):
    """Yields the sentences of Markdown: of paragraphs, list items and cells. Code and the target of a link are one word."""
    text = re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.M | re.S)
    text = re.sub(r"(`+).+?\1", "code", re.sub(r"\]\([^)]*\)", "]", text))
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) )|\||^#.*$|^\[.*\]: .*$", text, flags=re.M):
        yield from re.split(r"(?<=[.?!])\s+", " ".join(block.split()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_sentence_is_too_long(page):
    text = page.read_text(encoding="utf-8")
    assert [sentence for sentence in sentences(text) if len(sentence.split()) > MOST] == []


def test_a_long_sentence_is_found():
    assert len(next(sentences("word " * 41 + "`some code`. Another.")).split()) == 42


def test_cargo_doc_knows_each_link_between_pages_of_the_guide():
    """A reference that `links.txt` lacks leads to a Markdown file, which the documentation does not contain."""

    def references(page):
        return set(re.findall(r"^\[([^\]]+)\]: ", page.read_text(encoding="utf-8"), flags=re.M))

    guide = ROOT / "interop-core/src/guide"
    known = references(guide / "links.txt")
    assert {page.name: lost for page in guide.glob("*.md") if (lost := references(page) - known)} == {}


def anchors(page):
    """The anchors that GitHub makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^\s*```.*?^\s*```", "", page, flags=re.M | re.S), flags=re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_to_a_file_and_a_heading(page):
    text = re.sub(r"^\s*```.*?^\s*```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    lost = []
    for link in re.findall(r"(?:\]\(|^\[[^\]]+\]: )([^)\s]+)", text, flags=re.M):
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        # What has a scheme, or is an item of Rust, is another program's.
        if re.match(r"https?:|crate\b|\w+@", link):
            continue
        if not target.exists() or (heading and heading not in anchors(target.read_text(encoding="utf-8"))):
            lost.append(link)
    assert lost == []


def test_the_files_that_the_architecture_names_exist():
    folders = ("interop-core", "interop-derive", "interop-ipc", "interop-kernel", "interop-tvm-ffi", "simulated-cuda-driver", "tests", "xtask")
    files = [path.as_posix() for folder in folders for path in (ROOT / folder).rglob("*.*")]
    named = set(re.findall(r"`([a-z_/-]+\.(?:rs|py|ptx))`", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")))
    assert len(named) > 35
    assert {name for name in named if not any(file.endswith(f"/{name}") for file in files)} == set()


def test_the_plots_are_those_of_the_tables():
    command = [sys.executable, ROOT / "tests/benches/python/plots.py", "--check"]
    assert subprocess.run(command, check=False).returncode == 0


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_pages_keep_to_their_budget():
    """A new fact makes room for itself. The changelog grows with the releases."""
    assert len(PAGES) <= 22
    words = {page.relative_to(ROOT): len(page.read_text(encoding="utf-8").split()) for page in PAGES if page.name != "CHANGELOG.md"}
    assert sum(words.values()) <= 28_000, sorted(words.items(), key=lambda page: -page[1])
