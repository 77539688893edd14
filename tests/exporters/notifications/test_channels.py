"""The messages of each kind of channel, and the settings that each requires."""

from __future__ import annotations

import re
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from html import escape
from pathlib import Path
from typing import Any

import orjson
import pytest

from exporters.errors import Misconfigured
from exporters.notifications import catalogue, channels
from exporters.notifications.channel import NotificationMessage, plain_text
from exporters.notifications.channels import alertmanager, email, pagerduty, slack, teams, webhook
from spool.registry.notices import BAR, CRITICAL, REPORT, Notice
from tests.exporters.notifications.examples import NOW, SECRET, notice, settings

MAIL = {
    "server": "mail.example.com:587",
    "sender": "tollhouse@example.com",
    "to": ("ada@example.com", "bob@example.com"),
}
COMPLETE: dict[str, dict[str, Any]] = {
    "webhook": {"url": "https://example.com/hook", "secret_file": Path("secret")},
    "slack": {"url_file": Path("address")},
    "teams": {"url_file": Path("address")},
    "pagerduty": {"secret_file": Path("secret")},
    "email": MAIL,
    "alertmanager": {"url": "http://127.0.0.1:9093"},
}


def test_every_module_is_in_the_list() -> None:
    """
    The list has every channel module, because nobody could configure a channel that is missing in the list.
    """
    modules = {path.stem for path in Path(channels.__file__).parent.glob("*.py")} - {"__init__"}
    assert modules == set(catalogue.TYPES) == set(COMPLETE)


def test_a_complete_channel_has_no_problem() -> None:
    each = [settings(type, **COMPLETE[type], name=type) for type in COMPLETE]
    assert [] == list(catalogue.all_channel_problems(each))


@pytest.mark.parametrize(
    ("type", "fields", "problem"),
    [
        ("webhook", {"url": ""}, "notify[0].url is required for type 'webhook'"),
        ("webhook", {"url": "ftp://x"}, "notify[0].url must begin with http:// or https://"),
        ("webhook", {"secret_file": None},
         "notify[0].secret_file is required for type 'webhook': it holds the secret for signatures"),
        ("webhook", {"name": "a b"}, "notify[0].name is required: letters, digits, '.', '_' and '-', at most 64"),
        ("slack", {"url": "https://x"}, "notify[0] needs either url or url_file for type 'slack'"),
        ("teams", {"url_file": None}, "notify[0] needs either url or url_file for type 'teams'"),
        ("pagerduty", {"secret_file": None},
         "notify[0].secret_file is required for type 'pagerduty': it holds the integration key"),
        ("alertmanager", {"headers": {"a b": "c"}},
         "notify[0].headers: 'a b' is not a valid header, or its value is not one line"),
        ("email", {"server": "mail"},
         "notify[0].server must be HOST:PORT for type 'email', such as \"smtp.example.com:587\""),
        ("email", {"sender": "x\r\nBcc: y@z"}, "notify[0].sender must be an email address for type 'email'"),
        ("email", {"to": ()}, "notify[0].to must be 1 to 50 different email addresses for type 'email'"),
        ("email", {"to": tuple(f"{n}@a.b" for n in range(51))},
         "notify[0].to must be 1 to 50 different email addresses for type 'email'"),
        ("email", {"to": ("ada",)}, "notify[0].to: 'ada' is not an email address"),
        ("email", {"username": "a"}, "notify[0]: set both username and secret_file for type 'email', or neither"),
        ("email", {"username": "a", "secret_file": Path("s"), "tls": "none"},
         "notify[0].tls = 'none' would send the password unencrypted"),
        ("email", {"quiet_hours": "22-7"}, 'notify[0].quiet_hours must be two different times such as "22:00-07:00"'),
        ("email", {"quiet_hours": "07:00-07:00"},
         'notify[0].quiet_hours must be two different times such as "22:00-07:00"'),
        ("email", {"digest": "24:00"}, 'notify[0].digest must be a time such as "08:00"'),
        ("email", {"time_zone": "Mars/Base"},
         "notify[0].time_zone: 'Mars/Base' is not a time zone; use a name such as Europe/Berlin"),
        ("email", {"time_zone": "../x"},
         "notify[0].time_zone: '../x' is not a time zone; use a name such as Europe/Berlin"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_the_names_of_the_settings(
    type: str, fields: dict[str, Any], problem: str
) -> None:
    assert [problem] == list(catalogue.all_channel_problems([settings(type, **{**COMPLETE[type], **fields})]))


def test_channel_name_is_unique() -> None:
    one = settings("alertmanager", **COMPLETE["alertmanager"])
    assert ["notify[1].name 'one' is already used"] == list(catalogue.all_channel_problems([one, one]))


def test_the_signature_is_that_of_the_specification() -> None:
    """The signature equals the published example of Standard Webhooks."""
    signed = webhook.sign_body(
        webhook.secret_bytes(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}'
    )
    assert "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" == signed


@pytest.mark.parametrize("secret", ["", "whsec_!", SECRET[6:], "whsec_c2hvcnQ=", "whsec_" + "A" * 92])
def test_a_secret_of_another_form_parks_the_channel(secret: str) -> None:
    """
    If the secret of a channel has a wrong form, the channel parks. The message states the required form, but
    not the secret.
    """
    with pytest.raises(Misconfigured, match=r"^the signing secret must be whsec_ followed by 24 to 64 bytes"):
        webhook.secret_bytes(secret)


def test_names_cannot_call_people_or_hide_addresses_in_chats() -> None:
    """
    Team names come from reports, so they must not cause mentions, markup or links with a misleading text.
    """
    text = slack.message_text(
        NotificationMessage(
            notices=[notice(title="<!channel> @everyone *x*", fields={"team": "[free](http://bad)"})]
        )
    )
    assert not set("<>[]") & set(text)
    assert "@everyone" not in text and "&lt;!channel&gt;" in text and "\N{WARNING SIGN} *" in text
    assert 2 == text.count("*")


def test_names_are_shown_in_chats_letter_by_letter() -> None:
    """Names become no code, no emphasis and no link. Only the console's own link works."""
    named = notice(
        title="`rm` ~x~ _y_ a_b",
        fields={"team": "https://bad.example www.bad.example"},
        link="https://a/#/b?c=d&e=f",
    )
    text = slack.message_text(NotificationMessage(notices=[named]))
    assert not set("`~") & set(text)
    assert "_y_" not in text and "a_b" in text
    assert "https://bad" not in text and "www.bad" not in text
    assert text.endswith("https://a/#/b?c=d&amp;e=f")


def test_a_long_chat_message_is_cut() -> None:
    text = slack.message_text(
        NotificationMessage(notices=[notice(str(number), text="x" * 4_000) for number in range(20)])
    )
    assert slack.MAX_TEXT + 3 == len(text)


def test_a_card_shows_names_letter_by_letter_and_is_cut() -> None:
    """Names cause no mention and no markup. Teams refuses messages over 28 KB, so a card is cut."""
    named = notice(
        title="**x** @all", fields={"team": "[free](http://bad)"}, text="one\n\ntwo", link="https://a/b"
    )
    blocks = teams.adaptive_card(NotificationMessage(notices=[named]))["attachments"][0]["content"]["body"]  # type: ignore[index]
    shown = orjson.dumps(blocks[:-1]).decode()
    assert "**" not in shown and "@all" not in shown and "http://bad" not in shown
    assert ["TextBlock", "TextBlock", "TextBlock", "TextBlock", "FactSet", "ActionSet"] == [
        block["type"] for block in blocks
    ]
    assert "https://a/b" == blocks[-1]["actions"][0]["url"]
    long = teams.adaptive_card(
        NotificationMessage(notices=[notice(str(number), text="x" * 4_000) for number in range(20)])
    )
    assert 20_000 < len(orjson.dumps(long)) < 28_000
    assert b"The rest is in the console" in orjson.dumps(long)


def test_an_event_of_the_same_thing_is_the_same_alert() -> None:
    """
    A second notice about the same budget does not start a new alert if only its amount differs. It does if
    its severity is greater.
    """
    first, second = (notice(id, thread="budget 1", fields={"spent": id}) for id in ("80", "90"))
    keys = [
        pagerduty.trigger_event(each, key="k" * 32)["dedup_key"]
        for each in (first, second, notice("80", thread="budget 1", severity=CRITICAL), notice("80"))
    ]
    assert keys[0] == keys[1]
    assert 3 == len(set(keys))


def test_an_alert_is_known_by_labels_without_amounts() -> None:
    """
    Notices of one thread are one alert. A notice without a thread is its own alert. An alert ends after
    it is sent.
    """
    first, second = (notice(id, thread="budget 1", fields={"spent so far": id}) for id in ("80", "90"))
    alert = alertmanager.encode_alert(first, now=NOW + 99_999)
    assert alert["labels"] == alertmanager.encode_alert(second, now=NOW)["labels"]
    assert {
        "alertname": "TollhouseBudgetThresholdCrossed",
        "kind": "budget.threshold_crossed",
        "severity": "warning",
        "thread": "budget 1",
    } == alert["labels"]
    assert {"summary": "title of 80", "description": "", "spent_so_far": "80"} == alert["annotations"]
    assert alert["startsAt"] == "2026-09-21T14:13:20.000Z"
    assert alert["endsAt"] == "2026-09-22T21:59:59.000Z"
    assert "n1" == alertmanager.encode_alert(notice(), now=NOW)["labels"]["notice"]  # type: ignore[index]


def test_a_mail_is_recognised_when_it_is_repeated() -> None:
    """
    A repeated mail with the same notices has the same Message-ID. Mails of one thread refer to the same message.
    """
    one = settings("email", **MAIL)
    first, again, other = (
        message_from_bytes(
            bytes(email.build_mail(NotificationMessage(notices=each), one, now=now)), policy=default
        )
        for each, now in (
            ([notice("a", thread="t")], NOW),
            ([notice("a", thread="t")], NOW + 60),
            ([notice("b", thread="t", severity=CRITICAL)], NOW),
        )
    )
    assert first["Message-ID"] == again["Message-ID"] != other["Message-ID"]
    assert first["References"] == other["References"] == other["In-Reply-To"]
    assert first["Auto-Submitted"] == "auto-generated"
    assert first["Subject"] == "[Tollhouse] title of a"
    assert "ada@example.com, bob@example.com" == first["To"]


def text_of(mail: EmailMessage) -> str:
    part = mail.get_body(("plain",))
    assert part is not None
    return str(part.get_content())


def html_of(*notices: Notice) -> str:
    group = NotificationMessage(notices=list(notices))
    mail = message_from_bytes(
        bytes(email.build_mail(group, settings("email", **MAIL), now=NOW)), policy=default
    )
    part = mail.get_body(("html",))
    assert part is not None
    return str(part.get_content())


def test_the_html_of_a_report_has_its_total_bars_and_lists() -> None:
    """The words are those of the text. Bars are cells with a width, and nothing is loaded from elsewhere."""
    report = notice(
        title="AI costs of all, 14 to 20 September 2026: $42.00 (+320 %)",
        kind=REPORT,
        link="https://toll/console/#/costs?a&b",
        text=f"Why.\n\nTue 15 Sep  {BAR}{BAR} $10.00\nWed 16 Sep  $0.00\n\nTop 1 by team\n- search: $40.00",
    )
    html = html_of(report)
    assert '<p style="font-size:28px;font-weight:600;margin:0 0 12px">$42.00 (+320 %)</p>' in html
    assert 2 == html.count("<tr>") and "width:100%;background" in html and "width:0%;background" in html
    assert "<li>search: $40.00</li>" in html
    assert '<a href="https://toll/console/#/costs?a&amp;b">Open in Tollhouse</a>' in html
    assert not re.search(r"\b(src|url|import|link rel|script)\b", html.replace("https://toll", ""))


def test_fields_and_commands_of_a_notice_are_written_for_people() -> None:
    """Names have no underscores, money has its unit, empty fields are left out, and the link shows where it leads."""
    told = notice(
        text="Run `tollhouse check`.",
        fields={"category": "delivery", "cost_impact": "2249.99", "view": ""},
        link="https://toll/x",
    )
    assert (
        "Run `tollhouse check`.\n\ncategory: delivery\ncost impact: $2,249.99\n\nhttps://toll/x"
        == plain_text(told)
    )
    assert "cost impact: not stated" == plain_text(notice(text="", fields={"cost_impact": "0.00"}))
    html = html_of(told)
    assert '<code style="font-size:12px">tollhouse check</code>' in html
    assert '<a href="https://toll/x">https://toll/x</a>' in html


@pytest.mark.parametrize(
    "hostile", ['<img src=x onerror="a()">', '"><script>a()</script>', "&lt;b&gt;", "javascript:a"]
)
def test_hostile_names_stay_text_in_html(hostile: str) -> None:
    bar = f"{hostile}  {BAR} $1.00"
    told = notice(title=f"{hostile}: {hostile}", text=f"{bar}\n\nTop\n- {hostile}", kind=REPORT, link=hostile)
    for html in (html_of(told), html_of(notice(title=hostile, text=hostile, fields={hostile: hostile}))):
        for tag in ("<img", "<script", "<b>", "<a "):
            assert tag not in html
        assert escape(hostile) in html


def test_a_mail_that_is_too_long_for_html_has_its_text() -> None:
    lines = "\n\n".join(["x" * 100] * 700)
    group = NotificationMessage(notices=[notice(text=lines)])
    mail = message_from_bytes(
        bytes(email.build_mail(group, settings("email", **MAIL), now=NOW)), policy=default
    )
    assert "text/plain" == mail.get_content_type()


def test_a_mail_of_several_notices_says_all_of_them() -> None:
    group = NotificationMessage(
        notices=[notice("a", text="Grüße\n.\nend", fields={"x": "1"}), notice("b", link="https://x")]
    )
    mail = message_from_bytes(
        bytes(email.build_mail(group, settings("email", **MAIL), now=NOW)), policy=default
    )
    assert "[Tollhouse] 2 notifications: title of a and more" == mail["Subject"]
    assert "title of a\n\nGrüße\n.\nend\n\nx: 1\n\n----\n\ntitle of b\n\nhttps://x\n" == text_of(mail)
    assert mail["References"] is None


def test_a_list_is_attached_to_mails_and_a_field_of_webhooks() -> None:
    """Each notice of a group has its own file. Chats have no list, and a notice without one has no attachment."""
    listed = notice("a", csv="id,user\nm1,Grüße\n")
    mail = message_from_bytes(
        bytes(
            email.build_mail(
                NotificationMessage(notices=[listed, notice("b")]), settings("email", **MAIL), now=NOW
            )
        ),
        policy=default,
    )
    [part] = mail.iter_attachments()
    assert ("text/csv", "a.csv", listed.csv) == (
        part.get_content_type(), part.get_filename(), part.get_content(),
    )  # fmt: skip
    assert "title of a" in text_of(mail)
    documents = [webhook.event_document(each) for each in (listed, notice("b"))]
    assert [listed.csv, None] == [each["data"].get("csv") for each in documents]  # type: ignore[attr-defined]
