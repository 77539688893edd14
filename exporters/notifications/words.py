"""The words of a message for people: a subject, and plain text."""

from __future__ import annotations

from collections.abc import Sequence

from spool.registry.notices import Notice


def subject(notices: Sequence[Notice]) -> str:
    title = notices[0].title
    return title if len(notices) == 1 else f"{len(notices)} notices: {title} and more"


def plain(notice: Notice) -> str:
    """Without the title: the text, the fields on lines of their own, and the link."""
    fields = "\n".join(f"{name}: {value}" for name, value in notice.fields.items())
    return "\n\n".join(part for part in (notice.text, fields, notice.link) if part)
