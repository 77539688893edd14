"""
Notifications of a real server to a real receiver, over kills, and the reports of check and doctor about channels.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.waiting import wait_until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Receiver:
    """A webhook that verifies signatures and records ids on arrival. It answers once `open` is set."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.open = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + body
                key = base64.b64decode(SECRET.removeprefix("whsec_"))
                expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
                if not hmac.compare_digest(expected, self.headers["webhook-signature"]):
                    self.send_error(401)
                    return
                receiver.ids.append(self.headers["webhook-id"])
                receiver.open.wait(60)
                self.send_response(204)
                self.end_headers()

            def do_HEAD(self) -> None:
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.open.set()
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    yield one
    one.close()


def with_hook(installations: Any, receiver: Receiver, more: str = "") -> Any:
    notify = (
        f'[[notify]]\nname = "hook"\ntype = "webhook"\nurl = "{receiver.url}"\nsecret_file = "hook.secret"\n'
    )
    tollhouse = installations(more=notify + more)
    (tollhouse.directory / "hook.secret").write_text(SECRET + "\n")
    return tollhouse


def test_a_kill_neither_loses_nor_renames_a_notification(installations: Any, receiver: Receiver) -> None:
    """
    The server is killed while the receiver delays the first notification. All notifications arrive in order, and
    the repeated one has the same id.
    """
    tollhouse = with_hook(installations, receiver)
    tollhouse.start()
    made = [
        tollhouse.json("notifications", "channels", "test", "hook")["notification"]["notice"]
        for _ in range(3)
    ]
    wait_until(lambda: receiver.ids, "the first request")
    tollhouse.kill()
    assert set(made[:1]) == set(receiver.ids)
    receiver.open.set()
    tollhouse.start()
    wait_until(lambda: 3 == sent(tollhouse), "the answers on disk")
    assert made == list(dict.fromkeys(receiver.ids))
    assert made[:1] * 2 == receiver.ids[:2]
    tollhouse.stop()
    assert 3 == sent(tollhouse)  # the command lists the same notifications after the server has stopped


def sent(tollhouse: Any) -> int:
    found: int = tollhouse.json("notifications", "list", "--state", "sent")["pagination"]["total_count"]
    return found


def test_check_and_doctor_verify_channels_without_sending_notifications(
    installations: Any, receiver: Receiver
) -> None:
    """An unusable channel fails the check, with its name and the reason. No notification is sent."""
    tollhouse = with_hook(installations, receiver)
    [channel] = tollhouse.json("check")["channels"]
    assert channel["name"] == "hook"
    assert channel["type"] == "webhook"
    assert channel["status"] == "unverified"
    assert channel["to"] == receiver.url.removesuffix("/hook")
    (tollhouse.directory / "hook.secret").write_text("not a signing secret\n")
    assert "refused" in tollhouse.run("check", code=1)
    assert "channel hook" in tollhouse.attempt("doctor").stdout
    assert [] == receiver.ids
