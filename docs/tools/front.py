"""Makes docs/front.svg, the picture of the README: a cell's YAML, its data flow, and its speed.

    python docs/tools/front.py

The cell is the one of the README, the drawing that of `rnnspec show --svg`, and the times are those
of the README's table.
"""

import html
import re
from pathlib import Path

import rnnspec

DOCS = Path(__file__).resolve().parents[1]
INK, QUIET, OURS, THEIRS, PAPER = "#1f2937", "#6b7280", "#4c78a8", "#b6bcc6", "#ffffff"
ROW, LEFT, DRAWING = 17, 24, 560  # height of a line of text, left edge, where the drawing stands


def text(x: float, y: float, shown: str, size: int = 13, more: str = "") -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{INK}" xml:space="preserve"{more}>{html.escape(shown)}</text>'
    )


def bars(y: float, rows: list[tuple[str, float, str]]) -> list[str]:
    """A bar for each (label, time, colour), times relative to the first."""
    most, parts = max(time for _, time, _ in rows), []
    for number, (label, time, colour) in enumerate(rows):
        top = y + 30 * number
        parts.append(text(LEFT, top + 14, label))
        parts.append(f'<rect x="{LEFT + 250}" y="{top}" width="{200 * time / most:.0f}" height="20" fill="{colour}"/>')
        parts.append(text(LEFT + 258 + 200 * time / most, top + 15, f"{time:.2f}"))
    return parts


def main() -> None:
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    code = re.search(r"```yaml\n(.*?)```", readme, re.DOTALL)[1]
    first, second = re.search(r"the better of `torch.nn`.*?\| [\d.]+, ([\d.]+) \| [\d.]+, ([\d.]+) \|", readme).groups()
    drawing = rnnspec.loads(code).to_svg()
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', drawing)
    inner = drawing.replace("<svg ", f'<svg x="{DRAWING}" y="10" ', 1)
    rows = code.rstrip("\n").split("\n")
    height, width = max(float(size[2]) + 20, ROW * len(rows) + 200), DRAWING + float(size[1]) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif">',
        "<title>A cell in YAML, the data flow that follows from it, and its speed</title>",
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="{PAPER}"/>',
        *(
            text(LEFT, 40 + ROW * n, row.split("#")[0].rstrip(), more=' font-family="monospace"')
            for n, row in enumerate(rows)
        ),
        text(LEFT, ROW * len(rows) + 75, "Time of lstm, gru and rnn, geometric mean over eight shapes:", 12),
        *bars(
            ROW * len(rows) + 90,
            [
                ("rnnspec", 1.0, OURS),
                ("the better of torch.nn and ORT", float(first), THEIRS),
                ("the same, 2 threads each", float(second), THEIRS),
            ],
        ),
        inner,
        "</svg>",
    ]
    (DOCS / "front.svg").write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
