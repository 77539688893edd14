"""Names of people in records and queries: addresses, hashes, or nothing."""

from __future__ import annotations

import pytest

from spool.erasure import new_erasure, pseudonyms_by_digest
from spool.errors import Invalid
from spool.people import DROP, HASH, KEEP, People, is_address_hash
from spool.record import NS

ANN = "ann@example.com"
NO_ADDRESSES = ("ann", "", "git@example.com:a/b", "react@18.2.0", "Ann Lee <ann@example.com>")


def people(policy: str) -> People:
    return People.for_installation(b"s" * 32, policy)


@pytest.mark.parametrize("written", [ANN, "Ann@Example.COM", " ann@example.com\n"])
def test_an_address_is_one_person_however_it_is_written(written: str) -> None:
    """Records contain the address in lower case, its hash, or nothing, as configured."""
    hashed = people(HASH).text_for_record(ANN)
    assert hashed is not None and is_address_hash(hashed)
    assert [hashed, ANN, None] == [people(policy).text_for_record(written) for policy in (HASH, KEEP, DROP)]
    for policy in (HASH, KEEP, DROP):
        assert {ANN, hashed} <= set(people(policy).all_recorded_names(written))
        assert hashed == people(policy).person_identity(written)
    assert (hashed,) == people(KEEP).all_recorded_names(hashed.upper())


@pytest.mark.parametrize("name", NO_ADDRESSES)
@pytest.mark.parametrize("policy", [HASH, KEEP, DROP])
def test_other_names_stay_as_they_are(name: str, policy: str) -> None:
    """
    A name that contains an address is unchanged. Only a text that is an address as a whole counts as one.
    """
    known = people(policy)
    assert known.text_for_record(name) == name
    assert known.all_recorded_names(name) == (name,)
    assert known.hash_address(name) == name
    assert {"user": (name,)} == known.check_and_expand_filter({"user": (name,)})


def test_another_installation_has_other_hashes() -> None:
    """
    Installations with different secrets have different hashes. With the same secret the hashes are equal.
    """
    assert people(HASH).hash_address(ANN) != People.for_installation(b"t" * 32).hash_address(ANN)
    assert people(HASH).hash_address(ANN) == people(KEEP).hash_address(ANN)


def test_an_address_is_refused_where_records_carry_none() -> None:
    """
    If records contain no addresses, a query with an address is refused. Stored filters with an address still
    find records from before the setting.
    """
    with pytest.raises(Invalid, match="contain no e-mail address"):
        people(DROP).check_and_expand_filter({"user": ("bob", ANN)})
    assert people(HASH).all_recorded_names(ANN) == people(DROP).expand_filter({"user": (ANN,)})["user"]
    people(KEEP).reject_dropped_names([ANN])
    people(HASH).reject_dropped_names([ANN])


def test_only_calls_after_an_erasure_are_met() -> None:
    """The address of a call is reported with its time. Seats, and calls from before an erasure, report nothing."""
    known, met = people(HASH), list[tuple[str, str, int]]()
    known.persons.meets = lambda *each: met.append(each)
    hashed = known.text_for_record(ANN)
    known.texts_for_record({"a": ANN})
    assert hashed == known.recorded_name_or_hash(ANN) and [] == met
    known.persons.erased = pseudonyms_by_digest([new_erasure([known.erasure_digest(str(hashed))], 2.0)])
    assert [hashed] * 2 == [known.text_for_record(f" {ANN.upper()} ", at) for at in (NS, 3 * NS)]
    assert [(ANN, hashed, 3 * NS)] == met
