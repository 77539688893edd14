"""Who a call was made for: the identity that spans, log records, points and their resources state."""

from __future__ import annotations

from msgspec import Struct

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.model import Attributes
from gateway.normalise.otlp.product import AttributeShape, Names, Product
from gateway.normalise.reading import values
from gateway.normalise.reading.tags import is_secret


class Caller(Struct, frozen=True, gc=False):
    """Who a call was made for, as far as one set of attributes says."""

    user: str | None = None
    team: str | None = None
    session: str | None = None
    api_key: str | None = None


NO_CALLER = Caller()


def nearest(caller: Caller, further: Caller) -> Caller:
    """Field by field, the nearer one that says something."""
    if further is NO_CALLER:
        return caller
    if caller is NO_CALLER:
        return further
    return Caller(
        caller.user if caller.user is not None else further.user,
        caller.team if caller.team is not None else further.team,
        caller.session if caller.session is not None else further.session,
        caller.api_key if caller.api_key is not None else further.api_key,
    )


def caller_of(attributes: Attributes, shape: AttributeShape, product: Product) -> Caller:
    """The identity that an item states itself, under its product's names."""
    user_names = shape.user if product.user is None else product.user
    session_names = shape.session if product.session is None else product.session
    if not (user_names or session_names or shape.team or shape.api_key):
        return NO_CALLER
    return Caller(
        semconv.first_text(attributes, user_names) if user_names else None,
        semconv.first_text(attributes, shape.team) if shape.team else None,
        semconv.first_text(attributes, session_names) if session_names else None,
        _key_name(attributes, shape.api_key) if shape.api_key else None,
    )


def caller_of_resource(attributes: Attributes, shape: AttributeShape) -> Caller:
    """Return the user, team and session that a resource states for everything that it sends."""
    if not (shape.user or shape.team or shape.session):
        return NO_CALLER
    caller = Caller(
        semconv.first_text(attributes, semconv.RESOURCE_USER),
        semconv.first_text(attributes, semconv.RESOURCE_TEAM),
        semconv.first_text(attributes, semconv.RESOURCE_SESSION),
    )
    return NO_CALLER if caller == NO_CALLER else caller


def end_user_of(attributes: Attributes, user: str | None) -> str | None:
    """The end user beside an authenticated principal, for the tag `end_user`."""
    stated = values.text(attributes.get(semconv.END_USER))
    if stated is None and semconv.PRINCIPAL in attributes:
        stated = values.text(attributes.get("llm.user"))
    return stated if stated is not None and stated != user else None


def _key_name(attributes: Attributes, names: Names) -> str | None:
    """The alias of a caller's key, None if it was named after the key itself."""
    alias = semconv.first_text(attributes, names)
    return None if is_secret(alias) else alias
