"""A price list keeps one object for all parts that are equal, and no part changes by it."""

from __future__ import annotations

import re

import pytest

from gateway.intake.rate_cards.card import (
    TOKEN_PRICES,
    CardUnreadable,
    decode_card,
    encode_card,
    newest_packaged_file,
    packaged_card,
)


def test_equal_prices_of_all_providers_are_one_object() -> None:
    models = [model for seller in packaged_card().providers.values() for model in seller.models]
    rows = [row for model in models for row in model.prices]
    prices = [price for row in rows for name in TOKEN_PRICES if (price := getattr(row, name)) is not None]
    assert len({str(price) for price in prices}) == len({id(price) for price in prices}) < len(prices) / 5
    assert 1 == len({id(row.meters) for row in rows if not row.meters})
    assert 1 == len({id(model.regional) for model in models if not model.regional})
    assert len({repr(model.prices) for model in models}) == len({id(model.prices) for model in models})


def test_prices_keep_their_text() -> None:
    """Prices that are equal but have other texts stay apart, so a list is written as it was read."""
    content = newest_packaged_file().read_bytes().replace(b'"input":"8"', b'"input":"8.0"', 1)
    assert content.count(b'"input":"8.0"') == 1 < content.count(b'"input":"8"')
    assert content == encode_card(decode_card(content))


def test_an_error_has_its_place_in_the_whole_list() -> None:
    content = re.sub(rb'"id":"[^"]+"', b'"id":5', newest_packaged_file().read_bytes(), count=1)
    with pytest.raises(CardUnreadable, match=re.escape("at `$.providers[...].models[0].id`")):
        decode_card(content)
