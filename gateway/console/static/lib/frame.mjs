/** The frame around every page: menu, search, live state, theme, help, and the signed-in person. */
import {builtinName, roleName} from "./words.mjs";
import {go, here, to, useAddress} from "./address.mjs";
import {get, isDemo} from "./api.mjs";
import {html, useEffect, useRef, useState} from "./html.mjs";
import {Help, useKeyboard} from "./keyboard.mjs";
import {listen, pause, useLiveState} from "./live.mjs";
import {Problem, State, isOpen} from "./parts.mjs";
import {allowNames} from "./names.mjs";
import {useQuery} from "./query.mjs";

const BADGED = "/insights"; // the page whose menu entry has the number of what needs attention
const THEMES = ["system", "light", "dark"];

export function Frame({pages: all, session, version, telemetry, leave}) {
  allowNames(isOpen(session, {needs: "view_names", isWhole: true}));
  const {path, query} = useAddress();
  const [theme, nextTheme] = useTheme();
  const [helps, setHelps] = useState(false);
  const [searching, setSearching] = useState(null); // {Search} while the dialog is open
  const early = useRef(null);
  const search = () => {
    early.current = "";
    return import("./search.mjs").then(setSearching).catch(() => location.reload()); // the file belongs to another release
  };
  const [isOpened, setOpened] = useState(false); // the menu, on a phone
  const attention = useQuery(async () => (isOpen(session, {needs: "view_costs"}) ? (await get("/attention")).attention : null), [], ["insights", "routes", "dead", "devices", "notifications"]);
  const live = useLiveState();
  const pages = all.filter((each) => isOpen(session, each));
  const page = all.find((each) => each.path === path);
  const isClosed = path === "/" && page && !pages.includes(page) && pages.length > 0; // then show the first page that is open to this person
  useEffect(() => {
    if (isClosed) go(to(pages[0].path), {replaces: true});
  }, [isClosed]);
  useEffect(listen, []);
  useEffect(() => {
    document.title = `${page?.title ?? "Not found"} · Tollhouse`;
    setOpened(false);
  }, [path]);
  const entries = pages.filter((each) => !each.under);
  useKeyboard(pages, {"/": search, r: pause, t: nextTheme, "?": () => setHelps(true)}, early);
  const range = {from: query.get("from"), to: query.get("to")};
  return html`
    <a class="skip" href="#main" onClick=${toMain}>Skip to the content</a>
    <header class=${isOpened ? "opened" : ""}>
      <div class="top"><strong class="brand">Tollhouse</strong>
        <button type="button" class="opens" aria-expanded=${isOpened} onClick=${() => setOpened(!isOpened)}>Menu</button></div>
      <${ViewPicker} query=${query} />
      <nav aria-label="Pages">${groups(entries).map(([group, members]) => {
        const isHere = members.some((each) => isOf(page, each));
        const badge = members.some((each) => each.path === BADGED) && attention.data?.count > 0
          && html` <span class="badge">${attention.data.count}<span class="unseen"> critical</span></span>`;
        const links = members.map((each) => html`<a key=${each.path} href=${to(each.path, range)}
          aria-current=${isOf(page, each) ? "page" : undefined}>${each.title}${each.path === BADGED && badge}</a>`);
        return group && members.length > 1
          ? html`<div key=${group}><a href=${to(members[0].path, range)} aria-expanded=${isHere}>${group}${!isHere && badge}</a>
            ${isHere && html`<div role="group" aria-label=${group}>${links}</div>`}</div>` : links;
      })}</nav>
      <div class="who">
        <button type="button" onClick=${search} title="/ or Ctrl+K">Search</button>
        <button type="button" onClick=${pause} aria-pressed=${live === "paused"} title="r"><${State} word=${live} /></button>
        <button type="button" onClick=${() => setHelps(true)} aria-label="Keyboard shortcuts" title="?">?</button>
        <button type="button" onClick=${nextTheme} title="t">Theme: ${theme}</button>
        <span class="faint">${session.actor} (${session.role === "none" ? session.roles.map(builtinName).join(", ") || "no role" : roleName(session.role)})</span>
        <button type="button" onClick=${leave}>Sign out</button>
      </div>
    </header>
    <main id="main" tabindex="-1">
      ${isDemo && html`<${Loaded} load=${banner} session=${session} />`}
      ${!isDemo && attention.data?.planted && html`<${Loaded} load=${madeUp} planted=${attention.data.planted} />`}
      <h1>${page?.title ?? "Page not found"}</h1>
      ${page ? html`<${Loaded} key=${path} load=${page.load} ...${{session, query, telemetry, attention}} />`
        : html`<p>No page has the address <code>${path}</code>. <a href="#/">Go to the overview</a></p>`}
      <footer class="faint">Tollhouse ${version}. Times are UTC. Prompts and completions are never stored.<span class="paper"> Printed from ${location.host} on ${new Date().toISOString().slice(0, 10)}.</span></footer>
    </main>
    ${searching && html`<${searching.Search} pages=${pages} early=${early} close=${() => setSearching(null)} />`}
    ${helps && html`<${Help} pages=${pages} close=${() => setHelps(false)} />`}`;
}

/** Return whether an entry of the menu leads to the page, or to the page that it is under. */
const isOf = (page, entry) => entry === page || (page?.under !== undefined && entry.path === page.under);

/** Group neighbouring pages into [group, pages]. Pages without a group have `undefined`. */
function groups(pages) {
  const found = [];
  for (const page of pages) {
    if (found.at(-1)?.[0] !== page.group || !found.length) found.push([page.group, []]);
    found.at(-1)[1].push(page);
  }
  return found;
}

/** A picker for the view that filters every page with costs or calls. Hidden while no view exists. */
function ViewPicker({query}) {
  const {data: views, reload} = useQuery(async () => (await get("/views", {limit: 1000})).views, [], ["views"]);
  const asked = query.get("view") ?? "";
  const chosen = views?.find(({id, name}) => asked === id || asked === name);
  useEffect(() => {
    if (chosen && chosen.id !== asked) go(here({view: chosen.id}), {replaces: true}); // an id stays the same when the view is renamed
  }, [chosen?.id, asked]);
  useEffect(() => {
    if (views && asked && !chosen) reload(); // the view may be new, and the live stream waits while somebody points at a row
  }, [asked]);
  if (!asked && !views?.length) return null;
  return html`<label class="view faint">View <select value=${chosen?.id ?? asked}
    onChange=${(event) => go(here({view: event.target.value}))}>
    <option value="">Everything</option>
    ${views?.map(({id, name, broken}) => html`<option key=${id} value=${id}>${name}${broken && " (broken)"}</option>`)}
    ${asked && !chosen && html`<option value=${asked}>${views ? "unknown view" : asked}</option>`}</select></label>`;
}

// An upgrade removes the files of the old release. A reload of the console fetches the files of the new release.
const NOT_LOADED = {status: 404, message: "Tollhouse was upgraded or does not respond. Try again to reload the console."};

const banner = async () => ({Page: (await import("../pages/overview_demo.mjs")).Banner});
const madeUp = async () => ({Page: (await import("../pages/overview_demo.mjs")).MadeUp});

/** A page whose file is loaded first. `load` returns the module with its `Page`. */
function Loaded({load, ...given}) {
  const [{Page, error}, setFound] = useState({});
  useEffect(() => {
    load().then(setFound, () => setFound({error: NOT_LOADED}));
  }, []);
  if (error) return html`<${Problem} error=${error} retry=${() => location.reload()} />`;
  return Page ? html`<${Page} ...${given} />` : html`<p role="status" class="wait">Loading ...</p>`;
}

const toMain = (event) => {
  event.preventDefault();
  document.getElementById("main").focus();
};

/** Return the chosen theme, and a function that selects the next theme. */
function useTheme() {
  const [theme, setTheme] = useState(() => localStorage.getItem("theme") ?? "system");
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
  }, [theme]);
  const next = () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
  return [theme, next];
}
