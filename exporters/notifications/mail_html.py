"""
The HTML part of an e-mail: the words of its text part, with a large total and bars made of table cells.

It loads nothing, and every text that somebody else chose is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from exporters.notifications.channel import plain_text
from spool.registry.notices import BAR, REPORT, Notice

MAX_HTML_BYTES = 60 * 1024  # mail programs cut longer mails; a longer mail has only its text
_BAR_LINE = re.compile(rf"(.*?)  ({BAR}*) ?(-?[<$].*)")
_CODE, _CODE_HTML = re.compile("`([^`<]+)`"), r'<code style="font-size:12px">\1</code>'
_FONT = "font:14px/1.45 system-ui,sans-serif"
_FAINT = "opacity:0.7"  # no grey has enough contrast on both a white and a dark page


def mail_html(notices: Sequence[Notice]) -> str | None:
    """Return the HTML document for these notices, or None if it would be too long."""
    parts = '<hr style="border:0;border-top:1px solid #d0d5dd;margin:24px 0">'.join(
        map(_notice_html, notices)
    )
    document = (
        '<!doctype html><html><head><meta charset="utf-8"><meta name="color-scheme" content="light dark"></head>'
        f'<body style="{_FONT};max-width:640px;margin:0 auto;padding:16px;overflow-wrap:anywhere">'
        f"{parts}</body></html>\n"
    )
    return document if len(document.encode()) <= MAX_HTML_BYTES else None


def _notice_html(notice: Notice) -> str:
    blocks = plain_text(notice).split("\n\n") if plain_text(notice) else []
    return "".join([*_heading_html(notice), *(_block_html(block.splitlines(), notice) for block in blocks)])


def _heading_html(notice: Notice) -> Iterator[str]:
    label, _, total = notice.title.rpartition(": ")
    if notice.kind != REPORT or not label:
        yield f'<h1 style="font-size:20px;font-weight:600;margin:0 0 12px">{escape(notice.title)}</h1>'
        return
    yield f'<h1 style="font-size:14px;font-weight:400;margin:0;{_FAINT}">{escape(label)}</h1>'
    yield f'<p style="font-size:28px;font-weight:600;margin:0 0 12px">{escape(total)}</p>'


def _block_html(lines: Sequence[str], notice: Notice) -> str:
    if lines == [notice.link] and notice.link.startswith(("https://", "http://")):
        link = escape(notice.link)
        # the link of an insight may lead elsewhere, so its address is shown
        return f'<p><a href="{link}">{"Open in Tollhouse" if notice.kind == REPORT else link}</a></p>'
    bars = [_BAR_LINE.fullmatch(line) for line in lines] if notice.kind == REPORT else []
    if bars and all(bars):
        longest = max(len(match[2]) for match in bars if match)
        rows = "".join(_bar_html(*match.groups(), longest=longest) for match in bars if match)
        style = f"{_FONT};border-collapse:collapse;margin:12px 0;width:100%"
        return f'<table role="presentation" style="{style}">{rows}</table>'
    if len(lines) > 1 and all(line.startswith("- ") for line in lines[1:]):
        items = "".join(f"<li>{escape(line[2:])}</li>" for line in lines[1:])
        heading = f'<h2 style="font-size:16px;font-weight:600;margin:16px 0 4px">{escape(lines[0])}</h2>'
        return f'{heading}<ul style="margin:0;padding-left:16px">{items}</ul>'
    return f"<p>{_CODE.sub(_CODE_HTML, '<br>'.join(map(escape, lines)))}</p>"


def _bar_html(label: str, block_bar_text: str, amount: str, *, longest: int) -> str:
    width = 100 * len(block_bar_text) // max(longest, 1)
    cell = f'<div style="height:12px;width:{width}%;background:#4972ca"></div>'
    cells = (
        f'<td style="padding:2px 12px 2px 0;white-space:nowrap;{_FAINT}">{escape(label)}</td>',
        f'<td style="width:100%">{cell}</td>',
        f'<td style="padding:2px 0 2px 12px;text-align:right;white-space:nowrap">{escape(amount)}</td>',
    )
    return f"<tr>{''.join(cells)}</tr>"
