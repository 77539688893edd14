"""
The region where a provider processed a call: a region of its cloud (`us-east-1`), or a geography with its own
prices (`us`, `global`).

The region comes from the provider's response or log, or from the address that was called. It is never the
region of the sender.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from gateway.normalise.reading.models import BEDROCK_ID
from gateway.normalise.reading.values import text_or_none
from spool.caches import cache_by_text

GLOBAL: Final = "global"
MAX_NAME: Final = 64
MAX_ADDRESS: Final = 512

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
# Cloud -> patterns of its region names. The clouds have only names of geographies in common.
_OF_CLOUD = {
    "aws": re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d+"),
    "azure": re.compile(r"[a-z]+\d?[a-z]*"),
    "gcp": re.compile(r"[a-z]+(?:-[a-z]+\d+)?"),
}
_UNKNOWN = frozenset({"not_available", "unknown", "unspecified", "default", "undefined", "none", "null"})

_HOST = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://)?(?:[^/?#@]*@)?(?P<host>[a-z0-9._-]+)(?::\d+)?(?P<path>/[^?#]*)?(?:[?#].*)?"
)
_LOCATION = re.compile(r"/locations/(?P<region>[a-z0-9-]+)(?:/|$)")
# Patterns of host names with a region. A customer may choose the labels before the region.
_HOSTS = tuple(
    re.compile(form)
    for form in (
        r"(?:.+\.)?bedrock[a-z-]*\.(?P<region>[a-z]{2}(?:-[a-z]+)+-\d)\.(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.aws)",
        r"(?P<region>[a-z]+(?:-[a-z]+)+\d+)-aiplatform\.googleapis\.com",
        r"aiplatform\.(?P<region>[a-z]{2})\.rep\.googleapis\.com",
        r"(?:.+\.)?(?P<region>[a-z]+\d?)\.api\.cognitive\.microsoft\.com",
        r".+\.(?P<region>[a-z]+\d?)\.(?:models\.ai|inference\.ai|inference\.ml)\.azure\.com",
        r"(?P<region>[a-z]{2})\.api\.openai\.com",
        r"(?P<region>[a-z]{2}(?:-[a-z]+)+-\d)\.api\.x\.ai",
        r"(?P<region>[a-z]{2})-api\.together\.ai",
        r"(?P<region>[a-z]{2})\.openrouter\.ai",
    )
)
_VERTEX = "aiplatform.googleapis.com"
_ARN = re.compile(r"arn:aws[a-z-]*:bedrock:(?P<region>[a-z0-9-]+):.*")


def region_of_call(*stated: Any, address: Any = None, model: Any = None) -> str | None:
    """
    Return the region of a call, or None if nothing states it.

    A model that any region may serve has the region `global`. Otherwise the order is: a stated region, the
    region in the called address, the region in the model's ARN.
    """
    written = model if type(model) is str and len(model) <= MAX_ADDRESS else None
    if written is not None and _is_bedrock_global_model(written):
        return GLOBAL
    for value in stated:
        if value is not None and (region := normal_region_name(value)) is not None:
            return region
    if address is not None and (region := region_of_address(address)) is not None:
        return region
    arn = _ARN.fullmatch(written) if written is not None and written.startswith("arn:") else None
    return normal_region_name(arn["region"]) if arn else None


def normal_region_name(value: Any) -> str | None:
    """Return a region in one spelling: `East US 2` becomes `eastus2`. Return None if the value is no name."""
    written = text_or_none(value)
    return None if written is None or len(written) > MAX_NAME else _normalise_region_name(written)


def is_region_of_cloud(value: Any, cloud: str) -> bool:
    name = normal_region_name(value)
    return name is not None and _is_name_of_cloud_region(name, cloud)


def region_of_address(value: Any) -> str | None:
    written = text_or_none(value)
    return None if written is None or len(written) > MAX_ADDRESS else _region_of_address(written)


@cache_by_text(1024)
def _normalise_region_name(written: str) -> str | None:
    folded = written.lower().replace(" ", "")
    return folded if _NAME.fullmatch(folded) and folded not in _UNKNOWN else None


@lru_cache(maxsize=1024)
def _is_name_of_cloud_region(name: str, cloud: str) -> bool:
    return _OF_CLOUD[cloud].fullmatch(name) is not None


@cache_by_text(1024)
def _region_of_address(written: str) -> str | None:
    parts = _HOST.fullmatch(written.lower())
    if parts is None:
        return None
    host = parts["host"].rstrip(".")
    location = _LOCATION.search(parts["path"] or "") if host.endswith(".googleapis.com") else None
    if location is not None and (region := _normalise_region_name(location["region"])) is not None:
        return region
    if host == _VERTEX:
        return GLOBAL
    matches = (form.fullmatch(host) for form in _HOSTS)
    return next((match["region"] for match in matches if match), None)


@cache_by_text(1024)
def _is_bedrock_global_model(model: str) -> bool:
    name = model.rpartition("/")[2]
    return name.startswith(f"{GLOBAL}.") and BEDROCK_ID.match(name) is not None
