/** Search: one dialog for pages, actions, and everything that has a name, with results while typing. */
import {go, to} from "./address.mjs";
import {get} from "./api.mjs";
import {WORK, titleOf, toUnit} from "./dimensions.mjs";
import {html, useEffect, useLayoutEffect, useRef, useState} from "./html.mjs";
import {Dialog, Problem} from "./parts.mjs";
import {useQuery} from "./query.mjs";
import {PLACES} from "./things.mjs";

const WAIT_MS = 150; // after the last key
const ACTIONS = [["Create a view", "/views"], ["Create a plan", "/plans"], ["Create a key", "/keys"], ["Create a budget", "/budgets"], ["Create a scheduled report", "/reports"],
  ["Import a bill", "/reconciliation"], ["Import a machine list", "/fleet"]];
/** Questions that no title of a page names, with the address of their answer. */
const QUESTIONS = [["Failed calls by key", "/costs", {by: "sender", measure: "errors", from: "now-24h"}], ["Who looked at a person", "/privacy", {tab: "viewings"}],
  ["Who changed what: the audit list", "/settings", {tab: "audit"}], ["Connect Claude Code, Codex, Cursor, LiteLLM or another program", "/connect", {}]];

const placeOf = (kind, id) => (kind !== "device" && PLACES[kind]?.(id, id)) || (WORK.includes(kind) ? toUnit(kind, id) : to("/costs", {[kind]: id, view: null, from: "now-90d"}));

/** Return what needs no request: field:value, a bound such as cost>0.5, the id of a record, and titles of pages and actions. */
function ofText(text, pages) {
  const [, field, value] = text.match(/^([a-z_]+):(.+)$/) ?? [];
  const [, amount, bound] = text.match(/^(cost|tokens|duration)\s*([<>]=?\s*[0-9.]+)$/) ?? [];
  const titled = [...pages.map(({title, path}) => ["page", title, to(path)]), ...ACTIONS.map(([title, path]) => ["action", title, to(path, {form: "open"})]),
    ...["team", "user", ...WORK].map((by) => ["report", `Costs by ${titleOf(null, by)}`, to("/costs", {by})])]
    .filter(([, title]) => text && title.toLowerCase().includes(text.toLowerCase()));
  return [
    ...(amount ? [["calls", text, to("/calls", {[amount]: bound.replace(/\s/g, ""), sort: amount, order: "desc"})]] : []),
    ...(field ? [[titleOf(null, field), value, WORK.includes(field) ? toUnit(field, value.trim()) : to("/costs", {[field]: value.trim()})]] : []),
    ...(/^\S+@\S+\.\S+$/.test(text) ? [["person", text, `#/people/${encodeURIComponent(text)}`]] : []),
    ...(/^[0-9a-f]{32}$/i.test(text) ? [["call", text, to("/calls", {open: text})]] : []),
    ...titled,
  ];
}

/** Return the questions that contain each word of a text. */
const questions = (text) => QUESTIONS.filter(([title]) => text && text.toLowerCase().split(/\s+/).every((word) => title.toLowerCase().includes(word)))
  .map(([title, path, query]) => ["question", title, to(path, {view: null, ...query})]);

/** `early`: what was typed before the dialog opened. */
export function Search({pages, early, close}) {
  const [typed, setTyped] = useState(early.current ?? "");
  const [isEntered, setEntered] = useState(typed.includes("\n"));
  const [text, latest, box] = [typed.trim(), useRef(""), useRef(null)];
  useLayoutEffect(() => {
    early.current = null;
    box.current.querySelector("input").setSelectionRange(typed.length, typed.length);
  }, []);
  useEffect(() => {
    addEventListener("hashchange", close); // also by the back button, or typed
    return () => removeEventListener("hashchange", close);
  }, []);
  latest.current = text;
  const {data, error} = useQuery(async () => {
    if (text) await new Promise((done) => setTimeout(done, WAIT_MS));
    return text && text === latest.current ? get("/search", {q: text}) : null;
  }, [text]);
  const isWhole = !text || data?.search.q === text || Boolean(error);
  const found = text && data?.search.q === text ? data.found.map(({kind, id, name}) => [titleOf(null, kind), name, placeOf(kind, id)]) : [];
  const items = [...ofText(text, pages), ...found, ...(isWhole ? questions(text) : [])].filter(([, , href]) => pages.some(({path}) => `${href.split("?")[0]}/`.startsWith(`#${path}/`)));
  useEffect(() => {
    if (!isEntered || !(items.length || isWhole)) return;
    setEntered(false);
    if (!items.length) return;
    close();
    go(items[0][2]);
  }, [isEntered, items.length, isWhole]);
  const moved = (event) => {
    const by = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (!by) return;
    event.preventDefault();
    const all = [...box.current.querySelectorAll("input, li a")];
    all[Math.max(0, Math.min(all.length - 1, all.indexOf(document.activeElement) + by))].focus();
  };
  return html`<${Dialog} title="Search" close=${close} name="search" pressed=${moved}><div ref=${box}>
    <form onSubmit=${(event) => {
      event.preventDefault();
      setEntered(true);
    }}><input type="search" aria-label="Name, number or page" placeholder="laptop-ada, #111, team:search, cost>0.5" autocomplete="off" maxlength="200" defaultValue=${typed}
      onInput=${(event) => setTyped(event.target.value)} /></form>
    <${Problem} error=${error} />
    <ul>${items.map(([kind, name, href]) => html`<li key=${`${kind} ${href}`}><a href=${href} onClick=${close}>${name}</a> <span class="faint">${kind}</span></li>`)}</ul>
    <p role="status" class="faint">${!text ? "Arrow keys select a result, and Enter opens it." : !isWhole ? "Searching ..." : items.length ? ""
      : `Nothing has this name. Searched: ${["page", ...(data?.search.kinds ?? [])].map((kind) => titleOf(null, kind)).join(", ")}.`}</p></div><//>`;
}
