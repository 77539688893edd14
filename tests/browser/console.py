"""A signed-in page of the console that records browser errors, and iterators over all pages."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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
    FloatRect,
    Locator,
    Page,
    Playwright,
    Request,
    ViewportSize,
    expect,
)

from gateway.cli import main
from gateway.service.demo.note import FILE
from spool.ledger.periods import named_span
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.waiting import wait_until

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = os.environ.get("TOLLHOUSE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking",
         "--disable-component-update", "--no-first-run",
         "--disable-site-isolation-trials", "--renderer-process-limit=1")  # fmt: skip
# The interval is long, because a device counts as offline after three intervals without a heartbeat.
MONTH = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
[devices]
heartbeat_interval = "1d"
"""
# Words of `tollhouse demo` that several installations share, so that the data is made once.
TWO_MONTHS = ("--days", "62", "--records", "6000", "--plant", "missing-price,retry-storm")
LIST = (resources.files("gateway.console") / "static/pages/list.mjs").read_text()
PAGES = re.findall(r'path: "([^"]+)", title: "([^"]+)".*import\("\./(\w+)\.mjs"\)', LIST)

NOWHERE = "/nowhere"
SCREENSHOTS = Path(__file__).parents[2] / "build/screenshots"
IS_PICTURED = bool(os.environ.get("TOLLHOUSE_SCREENSHOTS"))
WIDE: ViewportSize = {"width": 1280, "height": 800}
LARGE: ViewportSize = {"width": 1440, "height": 900}
PATIENCE_MS = 90_000  # limit for a change of the page, generous for a busy machine
NARROW: ViewportSize = {"width": 390, "height": 844}
# Rules by tag or name that depend on colours, sizes or visibility. All other rules give the same result
# in every look.
LOOKS = [
    "cat.color",
    "cat.sensory-and-visual-cues",
    "scrollable-region-focusable",
    "link-name",
    "button-name",
]
RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]
# A finding has the impact of its rule. Disable rules of lower impact, because they take two thirds of the
# time. Check five rows per table, because all rows have the same structure and a hundred would take most of
# the time. Check only an open dialog, because nothing behind it can be used. Check the contrast of each style of text
# on each background once per process, because the contrast of every text takes more than half of the time. Text with
# an absolute position is always checked, because it may cover something else than its parents.
_AUDIT = """
([part, tags, impacts, looks, isFramed, known]) => {
  const backgrounds = new Map();
  const backgroundOf = (each) => {
    if (!each) return "";
    if (!backgrounds.has(each)) {
      const {backgroundColor, backgroundImage, opacity, position} = getComputedStyle(each);
      const own = [backgroundColor, backgroundImage, opacity, position === "absolute" ? position : ""].join();
      backgrounds.set(each, (own === "rgba(0, 0, 0, 0),none,1," ? "" : `${own};`) + backgroundOf(each.parentElement));
    }
    return backgrounds.get(each);
  };
  const styleOf = (each) => {
    const {color, fontSize, fontWeight, textShadow} = getComputedStyle(each);
    return [each.localName, color, fontSize, fontWeight, textShadow, backgroundOf(each)].join();
  };
  const checked = new Set(known);
  const contrast = axe._audit.rules.find((rule) => rule.id === "color-contrast");
  const matches = window.matchesContrast ??= contrast.matches;
  contrast.matches = (each, ...more) => {
    const hasText = each.matches("input, select, textarea")
      || [...each.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
    const style = hasText && styleOf(each);
    if (!hasText || checked.has(style) || !matches.call(contrast, each, ...more)) return false;
    if (!style.includes("absolute")) checked.add(style);
    return true;
  };
  scrollTo(0, 0);  // the head of a table covers a part of the row that is below it while the page is scrolled
  const within = {
    include: [[part === "html" && document.querySelector("dialog:modal") ? "dialog[open]" : part]],
    exclude: [["tbody tr:nth-child(n+6)"], ...(isFramed ? [] : [["#app > header"]])],
  };
  const isOfLook = (rule) => !looks.length || [rule.id, ...rule.tags].some((each) => looks.includes(each));
  const isAsked = (rule) => impacts.includes(rule.impact) && isOfLook(rule);
  const lesser = axe._audit.rules.filter((rule) => !isAsked(rule));
  const rules = Object.fromEntries(lesser.map((rule) => [rule.id, {enabled: false}]));
  return axe.run(within, {runOnly: tags, rules, resultTypes: ["violations"]})
    .then(({violations}) => ({violations, checked: [...checked].filter((style) => !known.includes(style))}));
}"""
SETTLED_FRAMES = 3
# A frame in which scripts and style learn of a change, such as a new size of the window, and one in which it is drawn.
_DRAWN = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() =>
  done(document.documentElement.scrollWidth - innerWidth)))))"""
# Whether the page's only heading is visible and nothing is loading, and for a new page whether its event stream is
# connected. It must hold for some frames, because a response may lead to the next request when it is drawn. Frames are
# requested only then, because drawing one every 16 ms takes a fifth of the processor time of a page.
# Playwright's own locators take a third of the processor time of a page for this.
_SETTLED = f"""
(isNew) => {{
  const isVisible = (each) => each.checkVisibility({{visibilityProperty: true}});
  const isSettled = () => {{
    const headings = [...document.querySelectorAll("h1")].filter(isVisible);
    const isOld = document.querySelector(".old") || document.body.textContent.includes("Loading ...");
    const frame = [...document.querySelectorAll("header")].map((each) => each.textContent).join();
    return headings.length === 1 && !window.loading && !isOld && !(isNew && frame.includes("connecting"));
  }};
  const follow = (frames) => {{
    window.settledFrames = isSettled() ? frames : null;
    if (window.settledFrames !== null && frames <= {SETTLED_FRAMES}) requestAnimationFrame(() => follow(frames + 1));
  }};
  window.settledFrames ?? follow(0);
  const isDone = window.settledFrames > {SETTLED_FRAMES};
  if (isDone) window.settledFrames = null;  // for the next time
  return isDone;
}}"""
LOOK_MS = 20  # how often to look whether a page has settled
# Counts the requests and bodies that have not arrived.
_LOADING = """
window.loading = 0;
for (const [of, name] of [[window, "fetch"], [Response.prototype, "json"], [Response.prototype, "text"]]) {
  const before = of[name];
  of[name] = function (...given) {
    window.loading += 1;
    const found = before.apply(this, given);
    const ended = () => { window.loading -= 1; };
    found.then(ended, ended);
    return found;
  };
}
"""
# The place of an element that is the same in two frames.
_STILL = """(each) => new Promise((done) => {
  const look = (before) => requestAnimationFrame(() => {
    const {x, y, width, height} = each.getBoundingClientRect();
    const now = [x, y, width, height].join();
    if (now === before) done({x, y, width, height});
    else look(now);
  });
  look();
})"""
# A refused script or style is reliably an event of the page, but not always a console message.
_VIOLATIONS = """
document.addEventListener("securitypolicyviolation",
  (event) => console.error(`refused by policy: ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
# Presses count as one click, choices from a list as two, filled fields as one. Typing into a field that already has the
# focus takes no click.
_CLICKS = """
window.clicks = 0;
const filled = new WeakSet();
document.addEventListener("pointerdown", ({target}) => { // not a press that the driver stops at the window and repeats
  if (!target.closest?.("select, input:not([type=checkbox]), textarea")) window.clicks += 1;
}, true);
addEventListener("keydown", ({target}) => filled.add(target), true);
addEventListener("input", ({target}) => {
  if (target.matches("select")) window.clicks += 2;
  else if (!target.matches("[type=checkbox]") && !filled.has(target)) {
    filled.add(target);
    window.clicks += 1;
  }
}, true);
"""

_CHECKED_STYLES: set[str] = set()  # styles of text whose contrast was right


def launched(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)


def first_day(address: str) -> str:
    """Return the first day of a report, by its address."""
    named = re.search(r"[?&]range=(\w+)", address)
    if named is None:
        return address.partition("from=")[2][:10]
    return f"{named_span(named[1], time.time())[0].date()}"


def filled(directory: Path, *words: str) -> Tollhouse:
    """Create an unstarted installation with the data of `tollhouse demo WORDS`."""
    tollhouse = Tollhouse(directory, MONTH)
    shutil.copytree(_demo(datetime.now(UTC).date(), *words), tollhouse.data, dirs_exist_ok=True)
    return tollhouse


def send_calls_of_today(tollhouse: Tollhouse, *teams: str) -> None:
    """
    Send a call of each team and wait until it is counted, because in the first hours of a month the month so far
    may have none.
    """
    calls = [span(f"chatcmpl-today-{team}", team__id=team) for team in teams]
    assert 200 == post(tollhouse.url, request(calls), tollhouse.key("today")).status
    asked = "/report?by=team&range=this_month&where=sender%3Dtoday"
    wait_until(lambda: tollhouse.asked(asked)["total"]["calls"] == len(teams), "the calls are counted")


@cache
def _demo(today: date, *words: str) -> Path:
    """
    Create a demo data directory once per day; callers copy it, because a month takes a second of processor time.
    """
    folder = tempfile.TemporaryDirectory(prefix="tollhouse-demo-")
    atexit.register(folder.cleanup)
    data = Path(folder.name, "tollhouse-data")
    with ThreadPoolExecutor(
        1
    ) as aside:  # a separate thread has its own event loop, because Playwright's loop occupies this thread
        made = aside.submit(CliRunner().invoke, main, ["demo", "--data", str(data), *words]).result()
    assert made.exit_code == 0, made.output
    (data / FILE).unlink()  # the pages then treat the data like real data
    return data


def day_text(day: date) -> str:
    """Return a day as texts of the console write it."""
    return f"{day:%-d %b}" if day.year == datetime.now(UTC).year else f"{day:%-d %b %Y}"


def place_of(title: str) -> tuple[str, str]:
    """
    Return the path of a page and the menu entry that opens it.
    """
    [(path, entry)] = re.findall(rf'path: "([^"]+)", title: "{re.escape(title)}".*? entry: "(\w+)"', LIST)
    return path, entry


class Console:
    """
    A browser page on a Tollhouse. `wrong` holds the browser's errors except those a test `expects`. It must
    be empty at the end of a test.
    """

    def __init__(self, context: BrowserContext, tollhouse: Tollhouse, url: str = "") -> None:
        self.tollhouse = tollhouse
        self.url = url or tollhouse.url
        self.context = context
        self.wrong: list[str] = []
        self._requests: list[Request] | None = None
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(_VIOLATIONS)
        context.add_init_script(f"{{{_CLICKS}}}")
        context.add_init_script(f"{{{_LOADING}}}")
        self.page: Page = context.new_page()
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self._complain(f"{error}\n{error.stack or ''}"))
        self._expected: list[str] = []

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._complain(f"{message.text} {message.location['url']}")

    def _complain(self, text: str) -> None:
        if not any(part in text for part in self._expected):
            self.wrong.append(text)

    def listen(self) -> None:
        """
        Record requests from now on. A page takes a tenth more processor time then, so only some tests listen.
        """
        found = self._requests = []
        self.page.on("request", lambda request: found.append(request))

    @property
    def requests(self) -> list[Request]:
        assert self._requests is not None, "the test does not listen"
        return self._requests

    def expects(self, *parts: str) -> None:
        """Ignore errors that contain one of these parts, such as "409" for a change that must be refused."""
        self._expected += parts

    def sign_in(self, role: str = "admin") -> None:
        """
        Sign in with a one-time link from the CLI, by sending its secret as the link's page does.

        No page is opened, because drawing a page takes half a second of processor time.
        """
        link: str = self.tollhouse.json("console", "link", "--role", role)["link"]
        secret = unquote(link.partition("#link=")[2])
        answer = self.context.request.post(f"{self.url}/console/api/sessions", data={"link": secret})
        assert answer.ok, answer.text()

    def open(self, address: str = "/") -> None:
        """Load the page of an address such as "/costs?by=model", and wait until it settles."""
        self.begin(address)
        # A page reloads when its event stream connects, so the stream must be connected before the test starts.
        self.page.wait_for_function(_SETTLED, arg=True, polling=LOOK_MS)

    def begin(self, address: str) -> None:
        """Begin to load a page, for tests that hold back one of its requests."""
        if self.page.url != "about:blank":
            self.page.goto("about:blank")
        self.page.goto(f"{self.url}/console/#{address}")
        self.away()

    def away(self) -> None:
        """Move the pointer away from the rows, because a list with the pointer on a row is not updated."""
        self.page.mouse.move(0, 0)

    def clicks(self) -> int:
        """
        Return the clicks since the page was loaded. A choice from a list counts two, a filled field one.
        """
        found: int = self.page.evaluate("window.clicks")
        return found

    def go(self, address: str) -> None:
        """Go to an address within the loaded page like a link. The caller must wait for the content."""
        self.page.evaluate("(address) => { location.hash = address; }", address)
        self.away()

    def follow(self, title: str) -> int:
        """
        Go to a page by the menu, whose entry opens the first of its pages and shows the others as tabs. Return the
        number of clicks.
        """
        path, entry = place_of(title)
        tab = self.page.get_by_role("navigation", name=entry, exact=True).get_by_role(
            "link", name=title, exact=True
        )
        if tab.count():
            tab.click()
            return 1
        menu = self.page.get_by_role("navigation", name="Pages")
        link = menu.get_by_role("link", name=_entry(entry))
        is_first = f"#{path}" == str(link.get_attribute("href")).partition("?")[0]
        link.click()
        if is_first:
            return 1
        tab.click()
        return 2

    def do(self, item: str) -> None:
        """Choose an item of the person's menu."""
        self.page.locator("button.me").click()
        self.page.get_by_role("menuitem", name=item).click()

    def choose(self, row: str, item: str) -> None:
        """Open the menu of the row with this name, and choose an item. Takes two clicks."""
        self.page.get_by_role("button", name=f"Actions for {row}", exact=True).click()
        self.page.get_by_role("menuitem", name=item, exact=True).click()

    def settle(self) -> None:
        """Wait until the heading is visible and nothing is loading."""
        self.page.wait_for_function(_SETTLED, arg=False, polling=LOOK_MS)

    def has_address(self, *parts: str, without: Sequence[str] = ()) -> None:
        """
        Wait until the address has these parts and no other ones. The browser reports a new address a moment after the
        page shows its content.
        """
        wanted = "".join(f"(?=.*{re.escape(each)})" for each in parts)
        refused = "".join(f"(?!.*{re.escape(each)})" for each in without)
        expect(self.page).to_have_url(re.compile(f"^{wanted}{refused}"))

    def press_bar(self, *, place: int, of: int, is_tap: bool = False) -> None:
        """
        Press above the segments of a bar, because a segment leads to its group. The chart may still move, as
        sentences above it arrive.
        """
        chart = self.page.locator("figure svg[role=img]").first
        press = chart.tap if is_tap else chart.click
        press(position={"x": self.still(chart)["width"] * (place - 0.5) / of, "y": 4})

    def still(self, element: Locator) -> FloatRect:
        """Return the place of an element when it no longer moves."""
        found: FloatRect = element.evaluate(_STILL)
        return found

    def shortcut(self, keys: str, title: str) -> None:
        """Open a page by two keys. They are pressed again if the machine was too slow, as a person would."""
        heading = self.page.get_by_role("heading", level=1)

        def has_opened() -> bool:
            self.page.keyboard.type(keys)
            with suppress(AssertionError):
                expect(heading).to_have_text(title, timeout=PATIENCE_MS / 10)
                return True
            return False

        wait_until(has_opened, f"the page {title}")

    def resize(self, size: ViewportSize) -> None:
        """Change the size of the window, and wait until the page has followed it."""
        self.page.set_viewport_size(size)
        self.drawn()

    def drawn(self) -> None:
        """Wait until a change of the page, its window or its look is drawn."""
        self.overhang()

    def ask(self, path: str) -> Any:
        """Query the operator API with this page's session."""
        return self.context.request.get(f"{self.url}/console/api{path}").json()

    def more(self) -> None:
        """Open the toolbar's rarer choices."""
        self.page.locator("details.more:not([open]) > summary").click()

    def actions(self) -> set[str]:
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
        Return the findings of axe with these impacts within an element, one per line, under the page's own content
        policy. The frame around the page is checked only if `is_framed`. With `is_look`, only rules that depend on
        the look are checked, for another look of a page that was already checked.
        """
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(_axe() + ";0")
        looks = LOOKS if is_look else []
        words = [within, RULES, list(impacts), looks, is_framed, sorted(_CHECKED_STYLES)]
        answer = self.page.evaluate(_AUDIT, words)
        found = answer["violations"]
        if not found:
            _CHECKED_STYLES.update(answer["checked"])
        return [
            f"{rule['impact']} {rule['id']}: {node['html'][:200]} ({node['failureSummary']})"
            for rule in found
            for node in rule["nodes"]
        ]

    def overhang(self) -> int:
        """
        Return by how many pixels the page is wider than its window, after the next frame, in which tables fit
        themselves to a new width.
        """
        found: int = self.page.evaluate(_DRAWN)
        return found

    def screenshot(self, name: str) -> None:
        """
        Save a screenshot to build/screenshots if requested, because each takes a tenth of a second of processor
        time. It is a JPEG, because compressing a PNG takes five times as long.
        """
        if not IS_PICTURED:
            return
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.jpg", full_page=True, quality=80)

    def asked(self, part: str = "/console/api/") -> list[str]:
        """Return method and path of every request so far with `part` in its address."""
        found = [(request.method, urlsplit(request.url)) for request in self.requests if part in request.url]
        return [f"{method} {url.path}{'?' if url.query else ''}{url.query}" for method, url in found]


def visited(console: Console) -> Iterator[str]:
    """Load each page of the menu and each of its tabs; yield a name for its picture."""
    console.open("/")
    for path, _, name in _listed():
        console.open(path)
        tabs = _tabs(console)
        yield name
        for number, tab in enumerate(tabs, 2):
            console.open(tab)
            yield f"{name}-{number}"


def _entry(title: str) -> re.Pattern[str]:
    """Match the name of a menu entry, which may end with the number of its badge."""
    return re.compile(rf"^{re.escape(title)}( \d+ critical)?$")


def followed(console: Console) -> Iterator[str]:
    """
    Go to each page and tab without reloading, which takes a third of the time of `visited`.

    An invalid address is visited in between, so that nothing is left of the previous page.
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
    """Return path, title and file of each page, after checking that the regular expression missed none."""
    assert len(PAGES) == LIST.count("path: ") == LIST.count("import(")
    return PAGES


def _tabs(console: Console) -> list[str]:
    """
    Return the addresses of the shown page's tabs except the first, which is already shown. Tabs that lead across to
    another page belong to that page.
    """
    links = console.page.locator("nav.tabs:not(.across) a").all()
    return [(link.get_attribute("href") or "").removeprefix("#") for link in links][1:]


@cache
def _axe() -> str:
    return (resources.files("axe_playwright_python") / "axe.min.js").read_text()
