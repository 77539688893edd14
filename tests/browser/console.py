"""A signed-in page of the console, which remembers whatever goes wrong in the browser, and walks over all pages."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from click.testing import CliRunner
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    Request,
    ViewportSize,
    expect,
)

from gateway.cli import main
from tests.acceptance.conftest import Tollhouse

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = os.environ.get("TOLLHOUSE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--no-first-run",
         "--disable-site-isolation-trials", "--renderer-process-limit=1")  # fmt: skip
# A device of which nobody heard for three intervals is silent: not within a test.
MONTH = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
[devices]
heartbeat_interval = "1d"
"""
LIST = (resources.files("gateway.console") / "static/pages/list.mjs").read_text()
PAGES = re.findall(r'path: "([^"]+)", title: "([^"]+)".*import\("\./(\w+)\.mjs"\)', LIST)

NOWHERE = "/nowhere"
SCREENSHOTS = Path(__file__).parents[2] / "build/screenshots"
IS_PICTURED = bool(os.environ.get("TOLLHOUSE_SCREENSHOTS"))
WIDE: ViewportSize = {"width": 1280, "height": 800}
PATIENCE_MS = 90_000  # a net: nothing takes that long where nothing is wrong
NARROW: ViewportSize = {"width": 390, "height": 844}
# What depends on colours, on sizes and on what is hidden, by tag or rule: the rest is the same in every look.
LOOKS = [
    "cat.color",
    "cat.sensory-and-visual-cues",
    "scrollable-region-focusable",
    "link-name",
    "button-name",
]
RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]
# A finding has the impact of its rule. Rules of less impact take a third of the time, so they are not run.
# The rows of a table are made alike: five are looked at, of a hundred that would take most of the time. What lies
# behind an open dialog is nothing that can be used.
_AUDIT = """
([part, tags, impacts, looks, isFramed]) => {
  const within = {
    include: [[part === "html" && document.querySelector("dialog:modal") ? "dialog[open]" : part]],
    exclude: [["tbody tr:nth-child(n+6)"], ...(isFramed ? [] : [["#app > header"]])],
  };
  const isOfLook = (rule) => !looks.length || [rule.id, ...rule.tags].some((each) => looks.includes(each));
  const isAsked = (rule) => impacts.includes(rule.impact) && isOfLook(rule);
  const lesser = axe._audit.rules.filter((rule) => !isAsked(rule));
  const rules = Object.fromEntries(lesser.map((rule) => [rule.id, {enabled: false}]));
  return axe.run(within, {runOnly: tags, rules, resultTypes: ["violations"]});
}"""
# A refused script or style is an event of the page, not a line that can be relied on in its console.
_VIOLATIONS = """
document.addEventListener("securitypolicyviolation",
  (event) => console.error(`refused by policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
# A press is one click, a choice from a list two, a field that is filled one.
_CLICKS = """
window.clicks = 0;
const filled = new WeakSet();
addEventListener("pointerdown", ({target}) => {
  if (!target.closest?.("select, input:not([type=checkbox]), textarea")) window.clicks += 1;
}, true);
addEventListener("input", ({target}) => {
  if (target.matches("select")) window.clicks += 2;
  else if (!target.matches("[type=checkbox]") && !filled.has(target)) {
    filled.add(target);
    window.clicks += 1;
  }
}, true);
"""


def launched(playwright: Playwright) -> Browser:
    """The machine's own Chromium."""
    return playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)


def filled(directory: Path, *words: str) -> Tollhouse:
    """An installation that is not started yet, with what `tollhouse demo` makes of these words."""
    tollhouse = Tollhouse(directory, MONTH)
    shutil.copytree(_demo(datetime.now(UTC).date(), *words), tollhouse.data, dirs_exist_ok=True)
    return tollhouse


@cache
def _demo(today: date, *words: str) -> Path:
    """A data directory that is made once a day in a process, and copied: a month takes a second of the processor."""
    folder = tempfile.TemporaryDirectory(prefix="tollhouse-demo-")
    atexit.register(folder.cleanup)
    data = Path(folder.name, "tollhouse-data")
    with ThreadPoolExecutor(1) as aside:  # an event loop of its own: Playwright has one on this thread
        made = aside.submit(CliRunner().invoke, main, ["demo", "--data", str(data), *words]).result()
    assert made.exit_code == 0, made.output
    return data


def place_of(title: str) -> tuple[str, str]:
    """The path of a page, and the entry of the menu behind which it stands; "" for one that is itself an entry."""
    [(path, group)] = re.findall(
        rf'path: "([^"]+)", title: "{re.escape(title)}"(?:.*? group: "(\w+)")?', LIST
    )
    return path, group


class Console:
    """`wrong` is what the browser complained of; a test ends with it empty, less what it said it `expects`."""

    def __init__(self, context: BrowserContext, tollhouse: Tollhouse, url: str = "") -> None:
        self.tollhouse = tollhouse
        self.url = url or tollhouse.url
        self.context = context
        self.wrong: list[str] = []
        self.requests: list[Request] = []
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(_VIOLATIONS)
        context.add_init_script(f"{{{_CLICKS}}}")
        self.page: Page = context.new_page()
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self._complain(f"{error}\n{error.stack or ''}"))
        self.page.on("request", lambda request: self.requests.append(request))
        self._expected: list[str] = []

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._complain(f"{message.text} {message.location['url']}")

    def _complain(self, text: str) -> None:
        if not any(part in text for part in self._expected):
            self.wrong.append(text)

    def expects(self, *parts: str) -> None:
        """From now on what contains one of these is not a fault, such as "409" for a change that is to be refused."""
        self._expected += parts

    def sign_in(self, role: str = "admin") -> None:
        """
        By a one-time link of the command line, whose secret is sent as the page of the link would send it.

        No page is shown: drawing one takes half a second of the processor, and a test opens its own.
        """
        link: str = self.tollhouse.json("console", "link", "--role", role)["link"]
        secret = unquote(link.partition("#link=")[2])
        answer = self.context.request.post(f"{self.url}/console/api/sessions", data={"link": secret})
        assert answer.ok, answer.text()

    def open(self, address: str = "/") -> None:
        """Show the page of an address such as "/costs?by=model", loaded anew, and wait until it settles."""
        if self.page.url != "about:blank":
            self.page.goto("about:blank")
        self.page.goto(f"{self.url}/console/#{address}")
        self.page.mouse.move(0, 0)  # what a row that it is over says, is not exchanged
        self.settle()
        # A page that listens late loads again: nothing moves for that while a test looks at it.
        expect(self.page.locator("header").get_by_text("connecting")).to_have_count(0)

    def clicks(self) -> int:
        """How many clicks were made since the page was loaded: a choice from a list counts two, a filled field one."""
        found: int = self.page.evaluate("window.clicks")
        return found

    def go(self, address: str) -> None:
        """Go to an address within the page that is loaded, as a link does; what it shows is still to be awaited."""
        self.page.evaluate("(address) => { location.hash = address; }", address)
        self.page.mouse.move(0, 0)

    def follow(self, title: str) -> int:
        """
        Go to a page by the menu, whose groups open and lead to their first page; returns how many clicks it took.
        """
        menu = self.page.get_by_role("navigation", name="Pages")
        link = menu.get_by_role("link", name=title, exact=True)
        path, group = place_of(title)
        if not group or link.count():
            link.click()
            return 1
        entry = menu.get_by_role("link", name=group, exact=True)
        is_first = f"#{path}" == str(entry.get_attribute("href")).partition("?")[0]
        entry.click()
        if is_first:
            return 1
        link.click()
        return 2

    def settle(self) -> None:
        """Until the heading stands and nothing says that it is loading."""
        expect(self.page.get_by_role("heading", level=1)).to_be_visible()
        expect(self.page.get_by_text("Loading ...")).to_have_count(0)
        expect(self.page.locator(".old")).to_have_count(0)

    def ask(self, path: str) -> Any:
        """What the operator API answers to the session of this page."""
        return self.context.request.get(f"{self.url}/console/api{path}").json()

    def actions(self) -> set[str]:
        """What the audit list says was done."""
        return {row["action"] for row in self.ask("/audit")["audit"]}

    def audit(
        self,
        impacts: Sequence[str] = ("serious", "critical"),
        *,
        within: str = "html",
        is_framed: bool = False,
        is_look: bool = False,
    ) -> list[str]:
        """
        Return what axe finds of these impacts within an element, a line each; under the page's own policy.

        What stands around every page is asked about where it is looked at: where it `is_framed`. Of another look
        of a page that is asked about whole, only what `is_look`.
        """
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(_axe() + ";0")
        looks = LOOKS if is_look else []
        found = self.page.evaluate(_AUDIT, [within, RULES, list(impacts), looks, is_framed])["violations"]
        return [
            f"{rule['impact']} {rule['id']}: {node['html'][:200]} ({node['failureSummary']})"
            for rule in found
            for node in rule["nodes"]
        ]

    def overhang(self) -> int:
        """By how many pixels the page is wider than its window."""
        found: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return found

    def screenshot(self, name: str) -> None:
        """
        To build/screenshots, for people to look at, who ask for it: each takes a tenth of a second of the processor.

        To pack them as PNG takes five times as long.
        """
        if not IS_PICTURED:
            return
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.jpg", full_page=True, quality=80)

    def asked(self, part: str = "/console/api/") -> list[str]:
        """Method and path of every request so far whose address contains `part`."""
        found = [(request.method, urlsplit(request.url)) for request in self.requests if part in request.url]
        return [f"{method} {url.path}{'?' if url.query else ''}{url.query}" for method, url in found]


def visited(console: Console) -> Iterator[str]:
    """Open each page of the menu and each of its tabs, loaded anew; the name of each, for a picture of it."""
    console.open("/")
    for path, _, name in _listed():
        console.open(path)
        tabs = _tabs(console)
        yield name
        for number, tab in enumerate(tabs, 2):
            console.open(tab)
            yield f"{name}-{number}"


def followed(console: Console) -> Iterator[str]:
    """
    Go to each of them within a page that is loaded once, which takes a third of the time of `visited`.

    Each begins anew: an address without a page lies between two of them, so nothing is left of the one before.
    """
    console.open("/")
    for path, title, name in _listed():
        _go(console, path, title)
        tabs = _tabs(console)
        yield name
        for number, tab in enumerate(tabs, 2):
            _go(console, tab, title)
            yield f"{name}-{number}"


def _go(console: Console, address: str, title: str) -> None:
    heading = console.page.get_by_role("heading", level=1)
    for next_address, next_title in ((NOWHERE, "Page not found"), (address, title)):
        console.go(next_address)
        expect(heading).to_have_text(next_title)
    console.settle()


def _listed() -> list[tuple[str, str, str]]:
    """Path, title and file of each page; none of the list may have been overlooked."""
    assert len(PAGES) == LIST.count("path: ") == LIST.count("import(")
    return PAGES


def _tabs(console: Console) -> list[str]:
    """The addresses of the tabs of the page that is shown, but for the first, which it shows already."""
    links = console.page.locator("nav.tabs a").all()
    return [(link.get_attribute("href") or "").removeprefix("#") for link in links][1:]


@cache
def _axe() -> str:
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text()
