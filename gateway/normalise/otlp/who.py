"""On whose account a call ran: the identity that spans, log records, points and their resources state."""

from __future__ import annotations

from typing import NamedTuple

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.decoding.model import Attributes
from gateway.normalise.otlp.shapes import Names, Shape
from gateway.normalise.reading import vocabulary as words
from gateway.normalise.reading.tags import is_secret


class Who(NamedTuple):
    """On whose account a call ran, as far as one attribute dict says."""

    user: str | None = None
    team: str | None = None
    session: str | None = None
    api_key: str | None = None


NOBODY = Who()


def nearest(who: Who, further: Who) -> Who:
    """Field by field, the nearer one that says something."""
    if further is NOBODY:
        return who
    if who is NOBODY:
        return further
    return Who(
        who.user if who.user is not None else further.user,
        who.team if who.team is not None else further.team,
        who.session if who.session is not None else further.session,
        who.api_key if who.api_key is not None else further.api_key,
    )


def who_of(attributes: Attributes, shape: Shape, user_names: Names = semconv.USER) -> Who:
    """The identity that an item states itself."""
    if user_names is semconv.USER:
        user_names = shape.user
    if not (user_names or shape.session or shape.team or shape.api_key):
        return NOBODY
    return Who(
        semconv.first_text(attributes, user_names),
        semconv.first_text(attributes, shape.team) if shape.team else None,
        semconv.first_text(attributes, shape.session) if shape.session else None,
        _key_name(attributes, shape.api_key) if shape.api_key else None,
    )


def resource_who(attributes: Attributes) -> Who:
    """What a resource says for everything that it sends."""
    who = Who(
        semconv.first_text(attributes, semconv.RESOURCE_USER),
        semconv.first_text(attributes, semconv.RESOURCE_TEAM),
        semconv.first_text(attributes, semconv.RESOURCE_SESSION),
    )
    return NOBODY if who == NOBODY else who


def device_of(attributes: Attributes, host_id: bool) -> str | None:
    """The device that a resource names; `service.instance.id` is a process and never one."""
    return semconv.first_text(attributes, semconv.RESOURCE_DEVICE_OR_HOST if host_id else semconv.RESOURCE_DEVICE)


def end_user_of(attributes: Attributes, user: str | None) -> str | None:
    """The end user beside an authenticated principal, for the tag `end_user`."""
    stated = words.text(attributes.get(semconv.END_USER))
    if stated is None and semconv.PRINCIPAL in attributes:
        stated = words.text(attributes.get("llm.user"))
    return stated if stated is not None and stated != user else None


def _key_name(attributes: Attributes, names: Names) -> str | None:
    """The alias of a caller's key, unless somebody named it after the key itself."""
    alias = semconv.first_text(attributes, names)
    return None if is_secret(alias) else alias
