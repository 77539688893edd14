/** What stands around every page: menu, search, whether it is live, theme, help, and who is signed in. */
import {roleName} from "./account_roles.mjs";
import {go, here, to, useAddress} from "./address.mjs";
import {get, isDemo} from "./api.mjs";
import {html, useEffect, useRef, useState} from "./html.mjs";
import {Help, useKeyboard} from "./keyboard.mjs";
import {listen, pause, useLiveState} from "./live.mjs";
import {Problem, State, isOpen} from "./parts.mjs";
import {allowNames} from "./names.mjs";
import {useQuery} from "./query.mjs";

const THEMES = ["system", "light", "dark"];
const DARK = matchMedia("(prefers-color-scheme: dark)");

export function Frame({pages: all, session, version, telemetry, leave}) {
  allowNames(isOpen(session, {needs: "view_names", isWhole: true}));
  const {path, query} = useAddress();
  const [theme, isDark, nextTheme] = useTheme();
  const [helps, setHelps] = useState(false);
  const [searched, setSearched] = useState(null); // {word, Found}
  const look = (word) => import("./search.mjs").then(({Found}) => setSearched({word, Found})).catch(() => location.reload()); // it is of another release
  const [isOpened, setOpened] = useState(false); // the menu, on a phone
  const search = useRef(null);
  const live = useLiveState();
  const pages = all.filter((each) => isOpen(session, each));
  const page = all.find((each) => each.path === path);
  const isClosed = path === "/" && page && !pages.includes(page) && pages.length > 0; // to whom: see where one can go
  useEffect(() => {
    if (isClosed) go(to(pages[0].path), {replaces: true});
  }, [isClosed]);
  useEffect(listen, []);
  useEffect(() => {
    document.title = `${page?.title ?? "Not found"} · Tollhouse`;
    setOpened(false);
  }, [path]);
  useKeyboard(pages, {"/": () => search.current.focus(), r: pause, t: nextTheme, "?": () => setHelps(true)});
  const range = {from: query.get("from"), to: query.get("to")};
  return html`
    <a class="skip" href="#main" onClick=${toMain}>To the content</a>
    <header class=${isOpened ? "opened" : ""}>
      <div class="top"><strong class="brand">Tollhouse</strong>
        <button type="button" class="opens" aria-expanded=${isOpened} onClick=${() => setOpened(!isOpened)}>Menu</button></div>
      <${ViewPicker} query=${query} />
      <nav aria-label="Pages">${groups(pages).map(([group, members]) => {
        const links = members.map((each) => html`<a key=${each.path} href=${to(each.path, range)}
          aria-current=${each === page ? "page" : undefined}>${each.title}</a>`);
        return group && members.length > 1
          ? html`<div key=${group}><a href=${to(members[0].path, range)} aria-expanded=${members.includes(page)}>${group}</a>
            ${members.includes(page) && html`<div role="group" aria-label=${group}>${links}</div>`}</div>` : links;
      })}</nav>
      <div class="who">
        <form role="search" onSubmit=${(event) => find(event, pages, look)}><input ref=${search} name="q" type="search" list="found"
          aria-label="Search" placeholder="Search   /" autocomplete="off" /></form>
        <datalist id="found">${pages.map((each) => html`<option key=${each.path} value=${each.title} />`)}
          ${["model:", "team:", "user:", "api_key:"].map((each) => html`<option key=${each} value=${each} />`)}</datalist>
        <button type="button" onClick=${pause} aria-pressed=${live === "paused"} title="r"><${State} word=${live} /></button>
        <button type="button" onClick=${() => setHelps(true)} aria-label="Keyboard shortcuts" title="?">?</button>
        <button type="button" onClick=${nextTheme} title="t">Theme: ${theme}</button>
        <span class="faint">${session.actor} (${session.role === "none" ? session.roles.join(", ") || "no role" : roleName(session.role)})</span>
        <button type="button" onClick=${leave}>Sign out</button>
      </div>
    </header>
    <main id="main" tabindex="-1">
      ${isDemo && html`<${Loaded} load=${banner} session=${session} />`}
      <h1>${page?.title ?? "There is no such page"}</h1>
      ${page ? html`<${Loaded} key=${path} load=${page.load} isDark=${isDark} session=${session} query=${query} telemetry=${telemetry} />`
        : html`<p>Nothing is at <code>${path}</code>. <a href="#/">To the overview</a></p>`}
      <footer class="faint">Tollhouse ${version}. Times are UTC. Prompts and answers are never stored.</footer>
    </main>
    ${searched && html`<${searched.Found} word=${searched.word} session=${session} close=${() => setSearched(null)} />`}
    ${helps && html`<${Help} pages=${pages} close=${() => setHelps(false)} />`}`;
}

/** [name, pages] of each row of pages that have the same group; undefined for those without. */
function groups(pages) {
  const found = [];
  for (const page of pages) {
    if (found.at(-1)?.[0] !== page.group || !found.length) found.push([page.group, []]);
    found.at(-1)[1].push(page);
  }
  return found;
}

/** Chooses the view inside which every page shows costs and calls; not there while there is none. */
function ViewPicker({query}) {
  const {data: views, reload} = useQuery(async () => (await get("/views", {limit: 1000})).views, [], ["views"]);
  const asked = query.get("view") ?? "";
  const chosen = views?.find(({id, name}) => asked === id || asked === name);
  useEffect(() => {
    if (chosen && chosen.id !== asked) go(here({view: chosen.id}), {replaces: true}); // a name can change
  }, [chosen?.id, asked]);
  useEffect(() => {
    if (views && asked && !chosen) reload(); // it may have been saved just now, and news waits while somebody points at a row
  }, [asked]);
  if (!asked && !views?.length) return null;
  return html`<label class="view faint">View <select value=${chosen?.id ?? asked}
    onChange=${(event) => go(here({view: event.target.value}))}>
    <option value="">Everything</option>
    ${views?.map(({id, name, broken}) => html`<option key=${id} value=${id}>${name}${broken && " (broken)"}</option>`)}
    ${asked && !chosen && html`<option value=${asked}>${views ? "no such view" : asked}</option>`}</select></label>`;
}

// The files of a release are gone after an upgrade; loaded anew, the console has those of the next.
const NOT_LOADED = {status: 404, message: "Tollhouse may be another release by now, or does not answer."};

const banner = async () => ({Page: (await import("../pages/overview_demo.mjs")).Banner});

/** A page, by its file: `load` gives the module that has its `Page`. */
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

/** A page's title, field:value for Costs, a bound such as cost>0.5 for Calls, a record's id, or a name to look for. */
function find(event, pages, look) {
  event.preventDefault();
  const text = new FormData(event.currentTarget).get("q").trim();
  if (!text) return;
  event.currentTarget.reset();
  const page = pages.find((each) => each.title.toLowerCase().startsWith(text.toLowerCase()));
  const [, field, value] = text.match(/^([a-z_]+):(.+)$/) ?? [];
  const [, amount, bound] = text.match(/^(cost|tokens|duration)\s*([<>]=?\s*[0-9.]+)$/) ?? [];
  if (page) go(to(page.path));
  else if (amount) go(to("/calls", {[amount]: bound.replace(/\s/g, ""), sort: amount, order: "desc"}));
  else if (field) go(to("/costs", {[field]: value.trim()}));
  else if (/^[0-9a-f]{32}$/i.test(text)) go(to("/calls", {open: text}));
  else look(text);
}

/** The chosen theme, whether it is dark now, and a function that goes on to the next. */
function useTheme() {
  const [theme, setTheme] = useState(() => localStorage.getItem("theme") ?? "system");
  const [prefersDark, setPrefersDark] = useState(DARK.matches);
  useEffect(() => {
    const changed = () => setPrefersDark(DARK.matches);
    DARK.addEventListener("change", changed);
    return () => DARK.removeEventListener("change", changed);
  }, []);
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
    localStorage.setItem("theme", theme);
  }, [theme]);
  const next = () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]);
  return [theme, theme === "dark" || (theme === "system" && prefersDark), next];
}
