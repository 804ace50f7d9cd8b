"""A self-contained HTML page: no scripts, no fonts or files from elsewhere, pictures as inline SVG.

Light and dark follow the reader's system; on a narrow screen each row of a table becomes a card; it prints in black on
white without cutting rows, pictures or command lines.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import style
from .text import Table, cell


@cache
def shipped(name: str) -> str:
    """A style sheet or script of the package."""
    return files("dmodels.report").joinpath(name).read_text(encoding="utf-8")


def page(title: str, parts: Sequence[str], head: str = "") -> str:
    """The whole document; `head` goes to the end of its head."""
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{style.css()}{shipped('page.css')}</style>\n{head}</head>\n"
        f"<body>\n<main>\n<h1>{escape(title)}</h1>\n" + "\n".join(parts) + "\n</main>\n</body>\n</html>\n"
    )


def section(title: str, *parts: str, shut: bool = False) -> str:
    """A headed section; `shut`: only its title is seen until it is clicked (and whole in print)."""
    head, body = f"<h2>{escape(title)}</h2>", "\n".join(parts)
    if shut:
        return f"<section>\n<details>\n<summary>{head}</summary>\n{body}\n</details>\n</section>"
    return f"<section>\n{head}\n{body}\n</section>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def code(lines: Sequence[str]) -> str:
    """Lines to be copied."""
    return "<pre>" + escape("\n".join(lines)) + "</pre>"


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; columns of numbers align right, the first column heads its row.

    The roles repeat what the elements mean, because a row that is shown as a card loses its meaning in some browsers.
    """
    short = all(len(cell(row[0])) <= 14 for row in rows)
    numeric = [bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(head))]
    kind = [' class="number"' if right else "" for right in numeric]
    top = "".join(
        f'<th scope="col" role="columnheader"{k}>{escape(name)}</th>' for name, k in zip(head, kind, strict=True)
    )
    body = "\n".join('<tr role="row">' + _row(head, row, kind, short) + "</tr>" for row in rows)
    return (
        f'<div class="wide"><table role="table">\n<caption>{escape(caption)}</caption>\n'
        f'<thead role="rowgroup"><tr role="row">{top}</tr></thead>\n<tbody role="rowgroup">\n{body}\n</tbody>\n'
        "</table></div>"
    )


def folded(title: str, *parts: str) -> str:
    """What opens when its title is clicked."""
    return f"<details>\n<summary>{escape(title)}</summary>\n" + "\n".join(parts) + "\n</details>"


def card(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A row of numbers that tell the answer at a glance, each over its name."""
    cells = "".join(
        f"<div><dd>{escape(cell(value))}</dd><dt>{escape(name)}</dt></div>"
        for name, value in zip(head, rows[0], strict=True)
    )
    return f'<dl class="card">{cells}</dl>'


def _row(head: Sequence[str], row: Sequence[Any], kind: Sequence[str], short: bool) -> str:
    look = kind[0] or (' class="short"' if short else "")
    first = f'<th scope="row" role="rowheader"{look}>{escape(cell(row[0]))}</th>'
    return first + "".join(
        f'<td role="cell" data-name="{escape(name, quote=True)}"{k}>{escape(cell(value))}</td>'
        for name, value, k in zip(head[1:], row[1:], kind[1:], strict=True)
    )


def picture(made: Figure, caption: str, number: int, told: str = "") -> str:
    """A figure as inline SVG with a caption; `told` says to screen readers what it shows (default: the caption).

    `number` keeps the ids of several figures apart. Words stay words, colours are the page's variables.
    """
    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": str(number)}):
        made.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>f{number}-", svg)  # ids are unique in a file, not in a page
    svg = re.sub(r' (width|height)="[^"]*pt"', "", svg, count=2)
    svg = style.themed(svg.replace("'DejaVu Sans'", "'DejaVu Sans', system-ui"))
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(told or caption, quote=True)}" ')
    return f"<figure>\n{svg}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"


def drawn(answer: Any, drawings: Sequence[Callable[[Any, Axes], None]]) -> list[str]:
    """Each drawing of an answer as a picture; what it shows, the first line of its docstring, is the caption."""
    made = []
    for number, draw in enumerate(drawings):
        axes = style.panel()
        draw(answer, axes)
        axes.set_title("")  # the caption says it
        told = (draw.__doc__ or "").partition("\n")[0].rstrip(".")
        made.append(picture(style.paper(axes), told, number))
    return made


def pictures(made: Sequence[str]) -> str:
    """Several figures side by side where there is room."""
    return '<div class="pictures">\n' + "\n".join(made) + "\n</div>"


def report(title: str, notes: Sequence[str], drawn: Sequence[str], tables: Sequence[Table]) -> str:
    """A whole page of notes, figures and tables."""
    return page(title, [*map(paragraph, notes), pictures(drawn), *(table(*one) for one in tables)])
