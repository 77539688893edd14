"""Price lists that `tollhouse prices update` loads into a running server."""

from __future__ import annotations

from tests.acceptance.lifecycle.test_reload import Installations, configure, send
from tests.integration.test_prices_command import litellm_list


def test_a_running_server_uses_a_list_from_the_next_call_on(installations: Installations) -> None:
    """
    Calls before an update keep their estimate, and calls after it have the new price. A kill and a start keep the
    list. After undo, the packaged prices apply again. The totals of earlier calls change only with `ledger reprice`.
    """
    one = installations()
    configure(one)
    key = one.key("sender")
    one.start()
    first = send(one, key, "first")  # 1,000 tokens of input at 2.5, and 20 of output at 10 per million
    assert "0.0027" == first["estimated_cost"]
    source = one.directory / "list.json"
    price = {"input_cost_per_token": 2e-6, "output_cost_per_token": 8e-6}
    source.write_bytes(litellm_list(**dict.fromkeys(("gpt-4o", "gpt-4o-2024-08-06"), price)))
    printed = one.run("prices", "update", "--from", str(source), "--since", "2024-01-01")
    assert "changed: list prices litellm-" in printed
    second = send(one, key, "second")
    assert "0.00216" == second["estimated_cost"]
    assert second["price_book"].startswith("litellm-")
    one.kill()
    one.start()
    third = send(one, key, "third")
    assert ("0.00216", second["price_book"]) == (third["estimated_cost"], third["price_book"])
    assert first == one.records()[0]
    repriced = one.run("ledger", "reprice", "--from", "2024-01-01")
    assert f"totals with {second['price_book']}: $" in repriced
    assert "applies again" in one.run("prices", "undo")
    last = send(one, key, "last")
    assert (first["estimated_cost"], first["price_book"]) == (last["estimated_cost"], last["price_book"])
