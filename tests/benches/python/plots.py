"""Draws the plots at the top of PERFORMANCE.md from the tables of that page: `python3 tests/benches/python/plots.py`.

With `--check` it writes nothing and says which plot differs from the tables.
"""

import re
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "tests/benches/plots"
COLOURS = ("#c44e52", "#8c8c8c", "#dd8452", "#55a868", "#4c72b0")
BAR, GAP, LEFT, WIDTH, RIGHT = 13, 14, 300, 400, 60


def table(page, head):
    """Returns the rows of the table whose first line starts so: the label, and the numbers of each cell."""
    lines = page[page.index("\n" + head) :].strip().split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: [[float(number) for number in re.findall(r"\d+(?:\.\d+)?", cell)] for cell in row[1:]] for row in cells}


def bars(title, series, groups, line=None):
    """Returns horizontal bars as SVG. A group is a label and a value, or nothing, for each of the series."""
    most = max(value for _, values in groups for value in values if value)
    parts, y = [], 64
    for place, name in enumerate(series):
        x = 12 + place * 150
        parts.append(f'<rect x="{x}" y="34" width="10" height="10" fill="{COLOURS[place - len(series)]}"/>')
        parts.append(f'<text x="{x + 15}" y="43">{escape(name)}</text>')
    for label, values in groups:
        shown = [(place, value) for place, value in enumerate(values) if value]
        middle = y + len(shown) * BAR / 2 + 4
        parts.append(f'<text x="{LEFT - 8}" y="{middle:g}" text-anchor="end">{escape(label)}</text>')
        for place, value in shown:
            length, colour = WIDTH * value / most, COLOURS[place - len(series)]
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR - 2}" fill="{colour}"/>')
            parts.append(f'<text x="{LEFT + length + 5:.1f}" y="{y + 10}">{value:.{2 if most < 10 else 0}f}</text>')
            y += BAR
        y += GAP
    if line:
        x = LEFT + WIDTH * line / most
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="56" y2="{y - GAP + 4}" stroke="#222" stroke-dasharray="3 3"/>')
    size = f"{LEFT + WIDTH + RIGHT} {y}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="sans-serif" font-size="12" fill="#222">'
    background = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, background, f'<text x="12" y="20" font-size="15">{escape(title)}</text>', *parts, "</svg>", ""])


def exchange(page):
    """What an exchange on the host costs."""
    rows = table(page, "| | C | nanobind | NumPy | ours |")
    groups = [(label.replace("`", ""), [cell[0] if cell else None for cell in cells]) for label, cells in rows.items()]
    series = ["C, without checks", "nanobind", "NumPy", "ours"]
    return bars("An exchange with Python on the host, in nanoseconds (less is better)", series, groups)


def elements(page):
    """How fast elements are changed in place, as a multiple of another library's rate."""
    numpy = table(page, "| | `scale_`: NumPy, ours |")
    ndarray = table(page, "| | in place: slice, ndarray, ours |")
    torch = table(page, "| | in place: PyTorch, ours |")
    names = {
        "contiguous": ("C order", "contiguous", "contiguous"),
        "transposed": ("F order", "F order", "transposed, 2 axes"),
        "every second column": ("every second column",) * 3,
        "padded rows": ("padded rows",) * 3,
        "backwards": ("backwards", "backwards", None),
    }
    groups = []
    for label, (ours_1, ours_2, ours_3) in names.items():
        (theirs, ours), (_, beside, here) = numpy[ours_1][0], ndarray[ours_2][0]
        rate, own = torch[ours_3][0] if ours_3 else (1, None)
        groups.append((label, [theirs / ours, beside / here, own and own / rate]))
    series = ["NumPy, host", "ndarray, host", "PyTorch, GPU"]
    return bars("float32 changed in place: our rate, as a multiple of theirs (more is better)", series, groups, line=1)


def main():
    page = (ROOT / "PERFORMANCE.md").read_text(encoding="utf-8")
    stale = []
    for name, draw in (("exchange.svg", exchange), ("elements.svg", elements)):
        file, drawn = FOLDER / name, draw(page)
        if "--check" not in sys.argv:
            FOLDER.mkdir(exist_ok=True)
            file.write_text(drawn, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != drawn:
            stale.append(name)
    return f"not what the tables of PERFORMANCE.md say: {', '.join(stale)}; run this without --check" if stale else 0


if __name__ == "__main__":
    sys.exit(main())
