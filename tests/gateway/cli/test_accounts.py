"""Accounting shown as text: each line is a sum with its parts."""

from __future__ import annotations

from gateway.cli.operator.spool import format_accounting


def test_what_was_received_is_a_sum() -> None:
    """
    Each line of received records is a sum. Parts of zero are left out, ignored records show their reason, and
    a route shows its deliveries.
    """
    topic = {"received": 20_000, "split": 0, "accepted": 19_990, "kept": 19_990, "duplicates": 9, "pending": 0,
             "ignored.unmoved_counter": 1, "left_out": 3}  # fmt: skip
    route = {"delivered": 19_000, "queued": 988, "unknown": 2, "dead": 0}
    assert [
        "ai-telemetry: received 20,000 = stored 19,990 + duplicates 9 + ignored (unmoved counter) 1",
        "upstream/ai-telemetry: accepted 19,990 = delivered 19,000 + waiting 988 + sent, no answer 2",
    ] == list(format_accounting({"ai-telemetry": topic}, {"upstream/ai-telemetry": route}))


def test_an_empty_topic_and_a_split_item() -> None:
    """
    An empty topic is shown as 0 = 0. Records from split items and unreadable records have their own parts.
    """
    assert ["usage-events: received 0 = 0"] == list(format_accounting({"usage-events": {}}, {}))
    topic = {"received": 1, "split": 2, "accepted": 3, "kept": 2, "retired": 1, "damaged": 1}
    assert [
        "ai-telemetry: received 3 (including 2 from items with several records) = stored 2 + deleted after delivery 1; "
        "1 stored records cannot be read"
    ] == list(format_accounting({"ai-telemetry": topic}, {}))
