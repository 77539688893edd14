"""
Names of models and makers, in the form of the price list and in the form for people.

The module also orders models in lines: the models of one family and rank (such as small or large), by
release.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from gateway.normalise.reading import models
from spool import providers
from spool.ledger.dimensions import BUILT_IN_DIMENSIONS, MODEL_FAMILY, PROVIDER_FAMILY, DerivedDimension

# A closed model has the same price everywhere. The price of an open model applies only to the provider that
# lists it.
CLOSED = frozenset({"anthropic", "openai", "google", "x-ai", "cohere", "perplexity"})

# Models of Qwen that only Alibaba Cloud serves. Other models of Qwen are open, and many providers sell them.
_ONLY_AT_ALIBABA = re.compile(
    r"qwen-(coder|flash|max|plus|turbo)|qwen3-(coder-(flash|plus)|max|vl-plus)|qwen3\.\d-(flash|max|omni|plus)|qwq-plus"
)
_BEDROCK_VERSION = re.compile(r"-v\d+(?::\d+)?(?::\w+)?$")
# Models that have a version such as `v1` only on Bedrock. In other names, such as `deepseek-v3`, it is the
# model's own number.
_VERSIONED_AT_BEDROCK = ("claude-", "command-", "embed-", "titan-")
_DATED = re.compile(r"[-@](20\d\d)-?(0[1-9]|1[0-2])-?([0-2]\d|3[01])$")
# Matches a month and a day without a year, as in Azure's meters and older snapshots.
_SHORT_DATED = re.compile(r"[-@](0[1-9]|1[0-2])([0-2]\d|3[01])$")
_YEARS = range(2023, 2030)
_MARKS = re.compile(r"[^a-z0-9]+")
_LATEST = re.compile(r"(?:-latest|@latest|@default|:latest)$")


def maker_name_in_price_lists(model: str) -> str | None:
    """Return the maker of a model, as price lists name it, or None. `model` is in lower case."""
    if model.startswith("gpt-oss"):  # gpt-oss is an open model, so each provider sets its own price
        return None
    if _ONLY_AT_ALIBABA.match(model):
        return "dashscope"
    provider = models.maker_of_model(model)
    return None if provider is None else providers.provider_name_in_rate_cards(provider)


def provider_in_name(model: str) -> str | None:
    head, slash, _ = model.partition("/")
    if slash:
        return providers.provider_name_in_rate_cards(head)
    return "aws" if models.BEDROCK_ID.fullmatch(model) else None


def model_family(model: str) -> str:
    """Return a model's name without date, alias and seller."""
    last = model.lower()
    for spelling in possible_spellings(model):
        last = spelling
    return last


@lru_cache(maxsize=4096)
def _model_family(values: tuple[str, ...]) -> str:
    [model] = values
    return model_family(model) or model.lower()


def _seller_name(values: tuple[str, ...]) -> str:
    [provider] = values
    return providers.company_of_provider(provider) if provider else ""


# grouping -> function that returns the model or provider that all variants count under
_VALUES: Mapping[str, Callable[[tuple[str, ...]], str]] = {
    MODEL_FAMILY: _model_family,
    PROVIDER_FAMILY: _seller_name,
}
BUILT_IN = tuple(
    DerivedDimension(name=name, label=row.label, sources=row.sources, value=_VALUES[name])
    for name, row in BUILT_IN_DIMENSIONS.items()
)


@lru_cache(maxsize=4096)
def model_name_used_by_maker(model: str) -> str:
    """
    Return the maker's name of a model in lower case, without a seller's prefix or a Bedrock id's other parts.

    Some libraries remove only region and maker from a Bedrock id, so the version is also removed without
    them.
    """
    name = model.rpartition("/")[2].lower()
    bedrock = models.BEDROCK_ID.fullmatch(name)
    name = bedrock["model"] if bedrock else name
    version = _BEDROCK_VERSION.search(name)
    if version and (bedrock or ":" in version[0] or name.startswith(_VERSIONED_AT_BEDROCK)):
        name = name[: version.start()]
    return name


def model_family_without_separators(model: str) -> str:
    """Return a model family without separators, because bills and calls separate its words differently."""
    return _MARKS.sub("", model_family(model))


def possible_spellings(model: str) -> Iterator[str]:
    """Yield the spellings of a name, the most exact one first."""
    name = model.lower()
    yield name
    if name.startswith("arn:") or "models/" in name:
        name = name.rpartition("/")[2]
        yield name
    while "/" in name:
        name = name.partition("/")[2]
        yield name
    if models.BEDROCK_ID.fullmatch(name):
        name = model_name_used_by_maker(name)
        yield name
    dated = _DATED.search(name)
    if dated:
        yield f"{name[: dated.start()]}-{'-'.join(dated.groups())}"
        name = name[: dated.start()]
        yield name
    elif short := _SHORT_DATED.search(name):
        name = name[: short.start()]
        yield from (f"{name}-{year}-{'-'.join(short.groups())}" for year in _YEARS)
        yield name
    latest = _LATEST.search(name)
    if latest:
        yield name[: latest.start()]


class ModelVersion(NamedTuple):
    line: str
    version: tuple[int, ...]


_CLAUDE = re.compile(r"claude-(?P<rank>opus|sonnet|haiku|fable|mythos)-(?P<version>\d{1,2}(?:[-.]\d{1,2})?)")
_OLD_CLAUDE = re.compile(r"claude-(?P<version>\d(?:[-.]\d)?)-(?P<rank>opus|sonnet|haiku)(?:-latest)?")
_GPT = re.compile(
    r"gpt-(?P<version>\d+(?:\.\d+)?)(?P<omni>o?)(?:-(?P<rank>mini|nano|luna|terra|sol|astra|pro))?"
)
_GEMINI = re.compile(r"gemini-(?P<version>\d+(?:\.\d+)?)-(?P<rank>pro|flash|flash-lite)")


def model_family_rank_and_version(model: str) -> ModelVersion | None:
    """
    Return family, rank and version of a model, or None. `model` is the maker's name without a date. Only
    makers whose model names state these are supported.
    """
    for maker, pattern in (("claude", _CLAUDE), ("claude", _OLD_CLAUDE), ("gpt", _GPT), ("gemini", _GEMINI)):
        match = pattern.fullmatch(model)
        if match is not None:
            major, minor = [*map(int, re.findall(r"\d+", match["version"])), 0][:2]
            # gpt-4o ("omni") was released after gpt-4 and before gpt-4.1.
            omni = int(bool(match.groupdict().get("omni")))
            return ModelVersion(line=f"{maker}-{match['rank'] or 'base'}", version=(major, minor, omni))
    return None
