"""Price lists of an installation: stored in the data directory, undone, and replaced by newer releases."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gateway.configuration.prices import PriceSettings
from gateway.intake.rate_cards import card as cards
from gateway.intake.rate_cards import lists
from gateway.intake.rate_cards.card import (
    FORMAT,
    CardUnreadable,
    Model,
    ModelNameCondition,
    Price,
    RateCard,
    Seller,
)
from tests.rounds import reduced

PACKAGED = cards.packaged_card()
SECTION = PriceSettings()


def dated(day: str) -> RateCard:
    return RateCard(format=FORMAT, version=f"list-{day}", source={"date": day}, providers={})


def test_the_newest_list_applies_until_it_is_undone(tmp_path: Path) -> None:
    assert (
        PACKAGED
        == lists.read_price_list_in_use(SECTION, tmp_path)
        == lists.read_price_list_in_use(SECTION, None)
    )
    assert lists.delete_newest_price_list(tmp_path) is None
    for day in ("2026-11-28", "2026-11-29"):
        lists.store_and_trim_price_lists(tmp_path, dated(day))
        assert f"list-{day}" == lists.read_price_list_in_use(SECTION, tmp_path).version
    assert lists.delete_newest_price_list(tmp_path) is not None
    assert "list-2026-11-28" == lists.read_price_list_in_use(SECTION, tmp_path).version
    assert lists.delete_newest_price_list(tmp_path) is not None
    assert PACKAGED == lists.read_price_list_in_use(SECTION, tmp_path)


def test_a_newer_release_replaces_an_older_list(tmp_path: Path) -> None:
    """A stored list applies only if it is not older than the packaged list."""
    lists.store_and_trim_price_lists(tmp_path, dated("2020-01-01"))
    assert PACKAGED == lists.read_price_list_in_use(SECTION, tmp_path)
    lists.store_and_trim_price_lists(tmp_path, dated(PACKAGED.source["date"]))
    assert PACKAGED != lists.read_price_list_in_use(SECTION, tmp_path)


def test_old_lists_are_deleted(tmp_path: Path) -> None:
    for day in range(1, 10):
        lists.store_and_trim_price_lists(tmp_path, dated(f"2027-01-0{day}"))
    assert ["000005", "000006", "000007", "000008", "000009"] == [
        file.stem for file in lists.stored_price_list_paths(tmp_path)
    ]


def test_a_crash_leaves_the_list_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the process dies before the new list is complete, the list before applies, and the next update works."""
    lists.store_and_trim_price_lists(tmp_path, dated("2027-01-01"))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    for step in ("fsync", "link"):
        with monkeypatch.context() as patch:
            patch.setattr(os, step, fail)
            with pytest.raises(OSError, match="No space"):
                lists.store_and_trim_price_lists(tmp_path, dated("2027-01-02"))
        assert "list-2027-01-01" == lists.read_price_list_in_use(SECTION, tmp_path).version
    assert ["000001.json"] == [file.name for file in (tmp_path / lists.DIRECTORY).iterdir()]
    lists.store_and_trim_price_lists(tmp_path, dated("2027-01-03"))
    assert "list-2027-01-03" == lists.read_price_list_in_use(SECTION, tmp_path).version


def test_only_the_owner_of_the_data_directory_reads_a_list(tmp_path: Path) -> None:
    """A price list that root stores belongs to the owner of the data directory, as whom the server runs."""
    if os.geteuid() == 0:
        os.chown(tmp_path, 65534, 65534)
    owner = tmp_path.stat().st_uid
    path = lists.store_and_trim_price_lists(tmp_path, dated("2027-01-01"))
    for each, mode in ((path, 0o600), (path.parent, 0o700)):
        assert (owner, mode) == (each.stat().st_uid, each.stat().st_mode & 0o777)


def test_two_commands_do_not_overwrite_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two commands that store a list under the same number, the second one fails."""
    monkeypatch.setattr(lists, "stored_price_list_paths", lambda _: [])
    lists.store_and_trim_price_lists(tmp_path, dated("2027-01-01"))
    with pytest.raises(FileExistsError):
        lists.store_and_trim_price_lists(tmp_path, dated("2027-01-02"))
    monkeypatch.undo()
    assert "list-2027-01-01" == lists.read_price_list_in_use(SECTION, tmp_path).version


def test_a_damaged_list_says_how_to_delete_it(tmp_path: Path) -> None:
    path = lists.store_and_trim_price_lists(tmp_path, dated("2027-01-01"))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CardUnreadable, match="tollhouse prices undo deletes this list"):
        lists.read_price_list_in_use(SECTION, tmp_path)


def test_the_size_of_a_list_is_limited(tmp_path: Path) -> None:
    """A file of exactly prices.max_file_bytes is read, and a larger one is refused."""
    file = tmp_path / "list.json"
    file.write_bytes(cards.encode_card(dated("2027-01-01")))
    size = file.stat().st_size
    assert (
        "list-2027-01-01"
        == lists.read_price_list_in_use(PriceSettings(file=file, max_file_bytes=size), None).version
    )
    with pytest.raises(CardUnreadable, match=r"prices\.file: .*larger than prices\.max_file_bytes"):
        lists.read_price_list_in_use(PriceSettings(file=file, max_file_bytes=size - 1), None)


def test_the_setting_reads_both_formats(tmp_path: Path) -> None:
    """`prices.file` may name LiteLLM's list. Its day is that of the file."""
    file = tmp_path / "litellm.json"
    file.write_text(
        '{"gpt-9": {"litellm_provider": "openai", "input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}}'
    )
    os.utime(file, (1_800_000_000, 1_800_000_000))
    card = lists.read_price_list_in_use(PriceSettings(file=file), tmp_path)
    assert ("litellm", "2027-01-15") == (card.source["name"], card.source["date"])
    assert card.version.startswith("litellm-2027-01-15-")


def own(**price: Any) -> RateCard:
    model = Model(id="acme", match=ModelNameCondition(equals=("acme",)), prices=(Price(**price),))
    return replace(dated("2027-01-01"), providers={"acme": Seller(models=(model,))})


@pytest.mark.parametrize(
    ("card", "words"),
    [
        (own(input=Decimal("NaN")), "acme, acme: input is NaN"),
        (own(input=Decimal("Infinity")), "input is Infinity"),
        (own(output=Decimal(-1)), "output is -1"),
        (own(meters={"web_searches": Decimal(-1)}), "web_searches is -1"),
        (own(since="2027-02-30"), "since '2027-02-30' must be a day"),
        (own(since="tomorrow"), "since 'tomorrow' must be a day"),
        (own(hours=("25:00", "26:00")), "must be two times of day"),
        (own(mode="turbo"), "mode 'turbo' is unknown; known are batch, fast, flex"),
        (own(tiers=(cards.Tier(above=2), cards.Tier(above=1))), "the sizes of tiers must increase"),
        (replace(dated(""), source={}), "source.date must be the day of the list"),
        (replace(dated(""), source={"date": "2027-01-01", "currency": "EUR"}), "source.currency is EUR"),
        (replace(own(), format=FORMAT + 1), "format 2 is not 1"),
        (replace(own(), providers={"acme": Seller(models=(
            Model(id="a", match=ModelNameCondition(all=(ModelNameCondition(regex=("(",)),)), prices=()),
        ))}), "match.regex"),
    ],
)  # fmt: skip
def test_lists_with_faults_are_refused(card: RateCard, words: str) -> None:
    """A value in a price list that would fail only when a call is priced is refused when the list is read."""
    with pytest.raises(CardUnreadable) as refused:
        cards.decode_card(msgspec.json.encode(card))
    assert words in str(refused.value)


def test_the_packaged_list_has_no_fault() -> None:
    """The packaged price list has no fault. A server reads it without checks, so this test checks it."""
    assert PACKAGED == cards.read_card(cards.newest_packaged_file())


FIRST_USE = """
import sys, threading
from gateway.intake.rate_cards.card import packaged_card

sys.setswitchinterval(1e-6)
together = threading.Barrier(4)

def use():
    together.wait()
    packaged_card()

threads = [threading.Thread(target=use) for _ in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""


def test_threads_may_read_the_packaged_list_at_once() -> None:
    """
    If two threads of a process read the packaged price list first at the same moment, the process does not crash.
    """
    done = [
        subprocess.run([sys.executable, "-c", FIRST_USE], check=False).returncode
        for _ in range(reduced(4, by=2))
    ]
    assert {0} == {*done}
