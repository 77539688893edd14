/** The frame around every page: menu, search, live state, theme, help, and the signed-in person. */
import {builtinName, roleName} from "./words.mjs";
import {go, here, to, useAddress} from "./address.mjs";
import {get, isDemo} from "./api.mjs";
import {html, useEffect, useRef, useState} from "./html.mjs";
import {Help, useKeyboard} from "./keyboard.mjs";
import {listen, pause, useLiveState} from "./live.mjs";
import {Problem, State, isOpen} from "./parts.mjs";
import {allowNames} from "./names.mjs";
import {Menu} from "./menu.mjs";
import {useQuery} from "./query.mjs";
import {MENU} from "../pages/list.mjs";

const BADGED = "Insights"; // the entry with the number of what needs attention
const GLASS = "M2.5 7a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0M10.5 10.5 14 14";
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
  const page = all.find((each) => each.path === path) ?? all.find((each) => path.startsWith("/people/") && each.path === "/people");
  const isClosed = path === "/" && page && !pages.includes(page) && pages.length > 0; // then show the first page that is open to this person
  useEffect(() => {
    if (isClosed) go(to(pages[0].path), {replaces: true});
  }, [isClosed]);
  useEffect(listen, []);
  useEffect(() => {
    document.title = `${page?.title ?? "Not found"} · Tollhouse`;
    setOpened(false);
  }, [path]);
  const entries = MENU.map((each) => ({...each, pages: pages.filter(({entry}) => entry === each.name)})).filter(({pages: [first]}) => first);
  const entry = page?.entry ?? all.find(({path}) => path === page?.under)?.entry;
  const tabs = page?.entry ? pages.filter((each) => each.entry === entry) : [];
  const role = session.role === "none" ? session.roles.map(builtinName).join(", ") || "no role" : roleName(session.role);
  const [isUsed, setUsed] = useState(false); // whether somebody has pointed at the menu
  const use = () => setUsed(true);
  useKeyboard(pages, {"/": search, r: pause, t: nextTheme, "?": () => setHelps(true)}, early);
  const range = {from: query.get("from"), to: query.get("to")};
  return html`
    <a class="skip" href="#main" onClick=${toMain}>Skip to the content</a>
    <header class=${isOpened ? "opened" : ""} onPointerEnter=${use} onFocusIn=${use}>
      <div class="top"><strong class="brand"><svg viewBox="0 0 20 20" aria-hidden="true"><rect width="20" height="20" rx="5" /><path d="M5 14V9.5L10 6l5 3.5V14M10 14v-4" /></svg>Tollhouse</strong>
        <button type="button" class="opens" aria-expanded=${isOpened} onClick=${() => setOpened(!isOpened)}>Menu</button></div>
      <button type="button" class="find" onClick=${search} aria-keyshortcuts="/ Control+K"><${Icon} lines=${GLASS} />Search or jump to<kbd>/</kbd></button>
      ${isOpen(session, {needs: "view_costs"}) && html`<${ViewPicker} query=${query} isUsed=${isUsed} />`}
      <nav aria-label="Pages">${groups(entries).map(([group, members]) => {
        const links = members.map(({name, icon, pages: [first]}) => html`<a key=${name} href=${to(first.path, range)}
          aria-current=${name === entry ? (page === first ? "page" : "true") : undefined}><${Icon} lines=${icon} />${name}${name === BADGED && attention.data?.count > 0
            && html` <span class="badge">${attention.data.count}<span class="unseen"> critical</span></span>`}</a>`);
        return group ? html`<div key=${group} role="group" aria-label=${group}><span class="faint" aria-hidden="true">${group}</span>${links}</div>` : links;
      })}</nav>
      <${Menu} label=${`${session.actor}, ${role}, ${live}`} look="me" items=${[
        {title: `Theme: ${theme}`, act: nextTheme}, {title: "Keyboard shortcuts", act: () => setHelps(true)},
        {title: live === "paused" ? "Resume updates" : "Pause updates", act: pause}, "-", {title: "Sign out", act: leave},
      ]}><span class="face">${initials(session.actor)}</span><span><span>${session.actor}</span><small>${role} <${State} word=${live} /></small></span><//>
    </header>
    <main id="main" tabindex="-1">
      ${isDemo && html`<${Loaded} load=${banner} session=${session} />`}
      ${!isDemo && attention.data?.planted && html`<${Loaded} load=${madeUp} planted=${attention.data.planted} />`}
      <div class="titled"><h1>${page?.title ?? "Page not found"}</h1>
        ${tabs.length > 1 && html`<nav class="tabs across" aria-label=${entry}>${tabs.map((each) => html`<a key=${each.path} href=${to(each.path, range)}
          aria-current=${each === page ? "page" : undefined}>${each.title}</a>`)}</nav>`}</div>
      ${page ? html`<${Loaded} key=${path} load=${page.load} ...${{path, session, query, telemetry, attention}} />`
        : html`<p>No page has the address <code>${path}</code>. <a href="#/">Go to the overview</a></p>`}
      <footer class="faint">Tollhouse ${version}. Times are UTC. Prompts are dropped; tags keep at most five words.<span class="paper"> Printed from ${location.host} on ${new Date().toISOString().slice(0, 10)}.</span></footer>
    </main>
    ${searching && html`<${searching.Search} pages=${pages} early=${early} close=${() => setSearching(null)} />`}
    ${helps && html`<${Help} pages=${pages} close=${() => setHelps(false)} />`}`;
}

const Icon = ({lines}) => html`<svg viewBox="0 0 16 16" class="icon" aria-hidden="true"><path d=${lines} /></svg>`;

/** Return up to two letters for a person, of names such as "Rosa Ortiz" and "rosa.ortiz@example.com". */
const initials = (name) => name.split("@")[0].split(/[^\p{L}\p{N}]+/u).filter(Boolean).slice(0, 2).map(([letter]) => letter.toUpperCase()).join("");

/** Return the entries of the menu as [group, entries]. */
const groups = (entries) => [...new Set(entries.map(({group}) => group))].map((name) => [name, entries.filter(({group}) => group === name)]);

/** A picker for the view that filters every page with costs or calls. It loads the views when one is chosen or the menu `isUsed`. */
function ViewPicker({query, isUsed}) {
  const asked = query.get("view") ?? "";
  const isWanted = isUsed || asked !== "";
  const {data: views, reload} = useQuery(async () => (isWanted ? (await get("/views", {limit: 1000})).views : null), [isWanted], ["views"]);
  const chosen = views?.find(({id, name}) => asked === id || asked === name);
  useEffect(() => {
    if (chosen && chosen.id !== asked) go(here({view: chosen.id}), {replaces: true}); // an id stays the same when the view is renamed
  }, [chosen?.id, asked]);
  useEffect(() => {
    if (views && asked && !chosen) reload(); // the view may be new, and the live stream waits while somebody points at a row
  }, [asked]);
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
