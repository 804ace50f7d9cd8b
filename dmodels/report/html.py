"""A self-contained HTML page: no scripts, no fonts or files from elsewhere, pictures as inline SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from html import escape
from typing import Any

from matplotlib.figure import Figure

from .text import cell

_STYLE = """
:root { --ink: #1b1f24; --paper: #ffffff; --soft: #57606a; --line: #d0d7de; --mark: #0b5cad; --panel: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --soft: #9da7b3; --line: #30363d;
  --mark: #6cb6ff; --panel: #161b22; } figure svg { background: #ffffff; border-radius: 6px; } }
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 68rem; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; }
.answer { font-size: 1.15rem; border-left: 4px solid var(--mark); padding: .4rem 0 .4rem 1rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; min-width: 60%; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { margin: 1rem 0; } figure svg { max-width: 100%; height: auto; } figcaption { color: var(--soft); }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 1rem; }
pre { background: var(--panel); padding: .8rem; overflow-x: auto; font-size: .85rem; border-radius: 6px; }
@media print { body { max-width: none; } .pictures { grid-template-columns: 1fr 1fr; } pre { white-space: pre-wrap; } }
"""


def page(title: str, parts: Sequence[str]) -> str:
    """The whole document."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<style>{_STYLE}</style>\n</head>\n'
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n" + "\n".join(parts) + "\n</main>\n</body>\n</html>\n"
    )


def section(title: str, *parts: str) -> str:
    """A headed section."""
    return f"<section>\n<h2>{escape(title)}</h2>\n" + "\n".join(parts) + "\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def code(lines: Sequence[str]) -> str:
    """Lines to be copied."""
    return "<pre>" + escape("\n".join(lines)) + "</pre>"


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; columns of numbers align right."""
    numeric = [bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(head))]
    kind = [' class="number"' if right else "" for right in numeric]
    top = "".join(f'<th scope="col"{k}>{escape(name)}</th>' for name, k in zip(head, kind, strict=True))
    body = "\n".join(
        "<tr>" + "".join(f"<td{k}>{escape(cell(value))}</td>" for value, k in zip(row, kind, strict=True)) + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table>\n<caption>{escape(caption)}</caption>\n<thead><tr>{top}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def picture(made: Figure, caption: str, number: int) -> str:
    """A figure as inline SVG, readable by screen readers; `number` keeps the ids of several figures apart."""
    buffer = io.StringIO()
    made.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>f{number}-", svg)  # ids are unique in a file, not in a page
    svg = re.sub(r' (width|height)="[^"]*pt"', "", svg, count=2)
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(caption, quote=True)}" ', 1)
    return f"<figure>\n{svg}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def pictures(made: Sequence[str]) -> str:
    """Several figures side by side where there is room."""
    return '<div class="pictures">\n' + "\n".join(made) + "\n</div>"
