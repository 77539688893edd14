"""The list of destination types is complete, and each type states the settings that it requires."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from exporters.destinations import catalogue
from exporters.lake.destination import MOST_RECORDS, SCHEMES
from exporters.settings import DestinationSettings
from spool.record import TOPICS

OTHER_MODULES = {"__init__", "catalogue", "declaration", "upstream"}


def test_every_destination_module_is_in_the_list() -> None:
    """
    The list has every destination module, because nobody could configure a destination that is missing
    in the list.
    """
    modules = {path.stem for path in Path(catalogue.__file__).parent.glob("*.py")}
    assert modules - OTHER_MODULES <= set(catalogue.TYPES)


@pytest.mark.parametrize("name", catalogue.TYPES)
def test_the_list_names_each_declaration(name: str) -> None:
    assert name == catalogue.TYPES[name].name


@pytest.mark.parametrize("name", catalogue.TYPES)
def test_a_type_without_its_setting_is_a_problem_and_with_it_none(name: str) -> None:
    """
    If a required setting is missing, the problem names the setting as the user writes it. With the setting
    there is no problem.
    """
    type = catalogue.TYPES[name]
    assert type.needs in {field.name for field in fields(DestinationSettings)}
    assert set(type.topics) <= set(TOPICS)
    without = DestinationSettings(name="one", type=name, topics=type.topics, account="one")
    assert [f"destinations[0].{type.needs} is required for type {name!r}"] == list(
        catalogue.destination_problems([without])
    )
    scheme = SCHEMES.get(name, "http")
    value = (
        Path("records")
        if type.needs == "path"
        else "127.0.0.1:9093"
        if name == "kafka"
        else f"{scheme}://127.0.0.1"
    )
    given: dict[str, Any] = {type.needs: value, "account": "one"}
    settings = DestinationSettings(name="one", type=name, topics=type.topics, **given)
    assert [] == list(catalogue.destination_problems([settings]))


@pytest.mark.parametrize("name", [type.name for type in catalogue.TYPES.values() if type.needs == "path"])
def test_a_file_of_several_nodes_is_on_a_file_system_of_all(name: str) -> None:
    """
    With several nodes, a file must be on a file system that all nodes share, because each node would
    otherwise write a separate file. Such a file takes only one topic, because different nodes may send
    different topics. A data lake has separate files for each topic.
    """
    topics = catalogue.TYPES[name].topics
    alone = DestinationSettings(name="one", type=name, path=Path("records"), topics=topics[:1])
    assert [
        "shared = true" in problem
        for problem in catalogue.destination_problems([alone], of_several_nodes=True)
    ] == [True]
    shared = replace(alone, shared=True)
    assert [] == list(catalogue.destination_problems([shared], of_several_nodes=True))
    if len(topics) > 1:
        two = replace(shared, topics=topics[:2])
        is_lake = catalogue.TYPES[name].build_lake is not None
        assert ["one topic" in problem for problem in catalogue.destination_problems([two])] == (
            [] if is_lake else [True]
        )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"url": "gs://bucket/x"}, "takes s3://BUCKET/PREFIX"),
        ({"url": "s3://key:secret@bucket/x"}, "must not contain a user or a password"),
        ({"batch_records": MOST_RECORDS + 1}, "at most 1,000,000"),
        ({"required": False}, "a data lake needs every record"),
        ({"leave_out": ("spend",)}, "cannot be left out"),
        ({"leave_out": ("usr",)}, "did you mean 'user'"),
        ({"leave_out": ("tags.customer", "tags.")}, "'tags.' names no tag"),
        ({"endpoint": "http://store.example"}, "use https://"),
        ({"endpoint": "store.example"}, "must begin with https://"),
        ({"encryption": "rot13"}, "'AES256' or 'aws:kms:KEY'"),
        ({"type": "azure", "url": "az://container/x"}, "account is required"),
        ({"type": "file", "path": Path("lake")}, "type 'file' has a path"),
    ],
)
def test_a_lake_says_what_is_wrong_before_it_is_opened(changes: dict[str, Any], words: str) -> None:
    """
    Each problem in a data lake's settings is one sentence that names the setting. A batch at the limit is accepted.
    """
    at_bound = DestinationSettings(
        name="one", type="s3", url="s3://bucket/x", leave_out=("user", "tags.a"), batch_records=MOST_RECORDS
    )
    assert [] == list(catalogue.destination_problems([at_bound]))
    (problem,) = catalogue.destination_problems([replace(at_bound, **changes)])
    assert words in problem


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"url": "https://broker"}, "needs HOST:PORT"),
        ({"url": "user@broker:9092"}, "needs HOST:PORT"),
        ({"tls": False}, "only for loopback addresses"),
        ({"batch_records": 10_001}, "at most 10,000"),
        ({"topic": "costs"}, "must contain {topic}"),
        ({"sasl": "plain"}, "secret_file is required"),
        ({"sasl": "oauthbearer"}, "identity_token_file is required"),
        ({"sasl": "aws-msk-iam", "secret_file": Path("keys")}, "region is required"),
        ({"leave_out": ("user",)}, "remove it"),
        ({"required": False}, "a topic needs every record"),
        ({"tls_key_file": Path("key.pem")}, "set both tls_cert_file and tls_key_file"),
        (
            {"tls": False, "url": "[::1]:9093", "tls_cert_file": Path("c"), "tls_key_file": Path("k")},
            "tls_cert_file needs TLS",
        ),
    ],
)
def test_kafka_says_what_is_wrong_before_it_is_opened(changes: dict[str, Any], words: str) -> None:
    """A transaction at the limit is accepted."""
    at_bound = DestinationSettings(name="one", type="kafka", url="a:9093,b:9093", batch_records=10_000)
    assert [] == list(catalogue.destination_problems([at_bound]))
    (problem,) = catalogue.destination_problems([replace(at_bound, **changes)])
    assert words in problem
