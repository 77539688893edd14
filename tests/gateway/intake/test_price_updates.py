"""A newer price list, merged into the one in use: history stays, prices apply from a day on, and faults are refused."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.generate.merged_card import made
from docs.generate.price_sources import LITELLM, read
from gateway.intake.price_updates import (
    FILL,
    KEEP,
    NEWER,
    REPLACE,
    Change,
    MergeDecision,
    NewerListEntry,
    count_priced_models,
    merge_cards,
    price_changes,
    refusal_reasons,
    update_card,
    with_discounts_in_all_tiers,
)
from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards import card as cards
from gateway.intake.rate_cards import litellm
from gateway.intake.rate_cards.card import (
    FORMAT,
    Model,
    ModelNameCondition,
    Price,
    RateCard,
    Seller,
    Tier,
    day_ns,
)
from tests.gateway.intake.test_prices import at, call

DAY = "2026-11-27"
NOON = at("2026-11-27 12:00")


def price(input: str, output: str = "9", **more: Any) -> Price:
    return Price(input=Decimal(input), output=Decimal(output), **more)


def model(id: str, *prices: Price, starts: Sequence[str] = (), equals: Sequence[str] = ()) -> Model:
    match = ModelNameCondition(equals=(id, *equals), starts_with=tuple(starts))
    return Model(id=id, match=match, prices=prices or (price("1"),))


def card(*models: Model, seller: str = "openai", date: str = "2026-11-01", **source: str) -> RateCard:
    return RateCard(
        format=FORMAT, version=f"list-{date}", source={"date": date, **source},
        providers={seller: Seller(models=models)},
    )  # fmt: skip


def cost(result: RateCard, name: str, time: str = DAY, **fields: Any) -> str | None:
    return PriceBook(result).estimate_record(call(name, input=10**6, output=0, time=time, **fields))


def test_a_changed_price_applies_from_its_day_on() -> None:
    """Earlier calls keep their price, and a price that is known for a later day still applies then."""
    before = card(model("acme", price("2"), price("4", since="2027-01-01")))
    after = update_card(before, card(model("acme", price("3"))), since=DAY)
    costs = [cost(after, "acme", time) for time in ("2026-11-26", DAY, "2026-12-31", "2027-01-01")]
    assert ["2", "3", "3", "4"] == costs
    assert after == update_card(after, card(model("acme", price("3"))), since=DAY)


def test_names_with_other_prices_become_models_of_their_own() -> None:
    """
    If an alias has a new price, only the alias changes. If the model itself has one, names that match its patterns
    change with it, and exact names that the newer list lacks keep their price. Patterns that do not match the model's
    own name keep their price as well, because they stand for other models.
    """
    before = card(model("acme-2", price("2"), equals=("acme-latest", "acme-old"), starts=("acme-2-",)))
    after = update_card(before, card(model("acme-latest", price("5"))), since=DAY)
    assert ["5", "2", "2", "2"] == [
        cost(after, name) for name in ("acme-latest", "acme-2", "acme-old", "acme-2-1")
    ]
    before = card(model("acme-2", price("2"), equals=("acme-old",), starts=("acme-2",)))
    after = update_card(before, card(model("acme-2", price("5"))), since=DAY)
    assert ["5", "5", "2"] == [cost(after, name) for name in ("acme-2", "acme-2-1", "acme-old")]
    assert ["2", "2", "2"] == [cost(after, name, "2026-11-26") for name in ("acme-2", "acme-2-1", "acme-old")]
    before = card(model("acme", price("2"), starts=("acme-2",)))
    after = update_card(before, card(model("acme", price("5"))), since=DAY)
    assert ["5", "2"] == [cost(after, name) for name in ("acme", "acme-2")]


def test_what_the_newer_list_lacks_stays() -> None:
    """Models, tiers, meters and prices of cached tokens that the newer list does not state stay as they are."""
    listed = price("2", cache_read=Decimal("0.2"), meters={"web_searches": Decimal(10)})
    flex = price("1", mode="flex", cache_read=Decimal("0.1"))
    before = card(model("acme", listed, flex), model("other"))
    after = update_card(before, card(model("acme", price("3"))), since=DAY)
    assert "0.2" == cost(after, "acme", read=10**6)
    assert "1" == cost(after, "acme", tags={"service_tier": "flex"})
    assert "1" == cost(after, "other")
    found = PriceBook(after).find_listed_model("openai", "acme")
    assert found is not None and {"web_searches": Decimal(10)} == found.prices[-1].meters


def test_a_new_tier_begins_and_ends_with_the_standard_price() -> None:
    """
    A tier that the old list lacked has the newer list's price while today's standard price applies. When the
    standard price changes, the tier's price is unknown again, so the standard price applies.
    """
    before = card(model("acme", price("2"), price("4", since="2027-01-01")))
    newer = card(model("acme", price("2"), price("1", mode="flex")))
    after = update_card(before, newer, since=DAY)
    flex = {"service_tier": "flex"}
    assert ["1", "1", "4"] == [
        cost(after, "acme", time, tags=flex) for time in ("2026-01-01", DAY, "2027-01-01")
    ]
    record = call("acme", time="2027-01-01", tags=flex)
    PriceBook(after).price_record(record)
    assert f"{after.version}+flex-at-standard" == record.price_book


def test_prices_by_the_hour_stay() -> None:
    """A list that cannot state hours does not replace prices that depend on them."""
    before = card(model("acme", price("1"), price("2", hours=("01:00", "04:00"))))
    assert before == update_card(before, card(model("acme", price("2"))), since=DAY)


def test_repeated_and_rounded_prices_are_no_change() -> None:
    """
    A list may repeat the standard price in a tier for lack of another, and round a price per second. Neither changes
    the list in use. Sizes of 199,999 and 200,000 tokens are one size.
    """
    kept = price("2", cache_read=Decimal("0.2"), tiers=(Tier(above=199_999, input=Decimal(4), output=Decimal(9)),),
                 meters={"audio_seconds": Decimal("0.111")})  # fmt: skip
    flex = price("1", mode="flex", cache_read=Decimal("0.1"))
    before = card(model("acme", kept, flex))
    repeated = price("2", cache_read=Decimal("0.2"), tiers=(Tier(above=200_000, input=Decimal(4), output=Decimal(9)),),
                     meters={"audio_seconds": Decimal("0.110988")})  # fmt: skip
    newer = card(model("acme", repeated, price("1", mode="flex", cache_read=Decimal("0.2"))))
    assert with_discounts_in_all_tiers(before) == update_card(before, newer, since=DAY)


AMOUNTS = st.sampled_from([None, Decimal(0), Decimal("0.5"), Decimal(1), Decimal("2.5"), Decimal(8)])
NAMES = ("acme-1", "acme-1-mini", "acme-2", "other/acme-2")
DECISIONS = (NEWER, REPLACE, FILL, KEEP)


@st.composite
def rows(draw: st.DrawFn, mode: str = "") -> Price:
    meters = {"images": draw(AMOUNTS.filter(bool))} if draw(st.booleans()) else {}
    return Price(
        mode=mode, meters=meters, input=draw(AMOUNTS), output=draw(AMOUNTS), cache_read=draw(AMOUNTS)
    )


@st.composite
def lists(draw: st.DrawFn, *, patterns: bool = False) -> RateCard:
    """
    Generate a list of models, some of them without a price of input, and some with a batch tier. Only the list in
    use may have patterns.
    """
    models = []
    for name in draw(st.lists(st.sampled_from(NAMES), unique=True)):
        prices = [draw(rows())]
        if draw(st.booleans()):
            prices.append(draw(rows(mode="batch")))
        starts = (name,) if patterns and draw(st.booleans()) else ()
        models.append(model(name, *prices, starts=starts))
    return card(*models, seller=draw(st.sampled_from(["openai", "mistral"])))


@given(
    before=lists(patterns=True),
    newer=lists(),
    choices=st.fixed_dictionaries(dict.fromkeys(NAMES, st.sampled_from(DECISIONS))),
)
def test_merging_a_list_again_changes_nothing(
    before: RateCard, newer: RateCard, choices: dict[str, str]
) -> None:
    """Whatever prices the models have, and whatever is decided about each of them."""

    def decide(listed: NewerListEntry) -> MergeDecision:
        return MergeDecision(choices[listed.name], DAY)

    once = merge_cards(before, newer, decide)
    assert once == merge_cards(once, newer, decide)


@given(before=lists(patterns=True), first=lists(), second=lists())
def test_a_list_that_fills_gaps_changes_no_price_of_an_earlier_one(
    before: RateCard, first: RateCard, second: RateCard
) -> None:
    """The order of lists is their precedence: the later list adds prices and models, and changes none."""
    merged = merge_cards(before, first, lambda _: MergeDecision(NEWER, DAY))
    filled = merge_cards(merged, second, lambda _: MergeDecision(FILL, DAY))
    assert all(change.before is None for change in price_changes(merged, filled, time=NOON))


def test_a_model_with_only_a_price_of_output_is_listed_once() -> None:
    newer = card(model("acme", Price(output=Decimal(9))))
    after = update_card(card(), newer, since=DAY)
    assert ["acme"] == [each.id for each in after.providers["openai"].models]
    assert after == update_card(after, newer, since=DAY)


@pytest.mark.proof
def test_the_lists_of_the_packaged_card_can_be_merged_again() -> None:
    once = made(cards.packaged_card())
    assert once == made(once)


def test_the_real_list_can_be_loaded_twice() -> None:
    """After an update with LiteLLM's list, a second update changes nothing, and no check refuses the first one."""
    newer = litellm.convert_list(read(LITELLM)["models"], day=DAY, version="litellm-1")
    before = cards.packaged_card()
    after = update_card(before, newer, since=DAY)
    changes = price_changes(before, after, time=NOON)
    assert not list(refusal_reasons(before, newer, after, changes, today=DAY))
    assert [] == price_changes(after, update_card(after, newer, since=DAY), time=NOON)
    assert count_priced_models(after) >= count_priced_models(before)
    assert not [
        change
        for change in price_changes(before, after, time=day_ns("2026-11-01"))
        if is_a_price_of_text(change)
    ]


def is_a_price_of_text(change: Change) -> bool:
    """Return whether a known standard price differs. Before the day of an update, none does."""
    return change.before is not None and change.mode == "" and change.unit in ("input", "output")


def many(*prices: str, count: int = 50) -> list[Model]:
    return [model(f"m-{number}", price(prices[number % len(prices)])) for number in range(count)]


@pytest.mark.parametrize(
    ("newer", "words"),
    [
        pytest.param(card(*many("2"), date=DAY), "", id="the same"),
        pytest.param(card(*many("2", "2", "2", "2", "2", "2", "2", "9"), date=DAY), "", id="a few changes"),
        pytest.param(card(*many("2", count=30), date=DAY), "30 models, but at least 40", id="shrunken"),
        pytest.param(card(*many("2", count=0), date=DAY), "0 models, but at least 40", id="empty"),
        pytest.param(card(*many("2", count=49), model("m-49", price("0.002")), date=DAY),
                     "impossible jumps of 1 prices: m-49 of openai from 2 to 0.002", id="per thousand"),
        pytest.param(card(*many("2", count=49), model("m-49", price("0")), date=DAY),
                     "impossible jumps of 1 prices: m-49 of openai from 2 to 0", id="free"),
        pytest.param(card(*many("14.2"), date=DAY), "the prices of 50 models change by a factor of 2", id="yuan"),
        pytest.param(card(*many("2"), date="2026-11-28"), "which is in the future", id="from the future"),
        pytest.param(card(*many("2"), date="2026-10-31"), "but the list in use is of 2026-11-01", id="older"),
        pytest.param(card(*many("2", count=60), date=DAY, name="litellm"), "at least 1000", id="a part of LiteLLM's"),
    ],
)  # fmt: skip
def test_lists_that_cannot_be_right_are_refused(newer: RateCard, words: str) -> None:
    """A list that is incomplete, of another day, or in another currency or unit is refused with the reason."""
    before = card(*many("2"))
    found = "\n".join(
        refusal_reasons(before, newer, newer, price_changes(before, newer, time=NOON), today=DAY)
    )
    assert words in found
    assert bool(words) == bool(found)


def test_a_shrunken_list_is_compared_with_the_one_before() -> None:
    """A list of LiteLLM is compared with the number of models of the list of LiteLLM in use."""
    before = card(*many("2"), name="litellm", models="1500")
    newer = card(*many("2", count=1199), date=DAY, name="litellm")
    assert [
        "the list has prices of 1199 models, but at least 1200 are expected; it may be incomplete"
    ] == list(refusal_reasons(before, newer, newer, [], today=DAY))
