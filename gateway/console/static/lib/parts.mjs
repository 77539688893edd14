/** Small parts that every page uses. */
import {go, to} from "./address.mjs";
import {html, useEffect, useLayoutEffect, useRef, useState} from "./html.mjs";
import {clockTime, duration, exactCount, fixed, placesOf} from "./format.mjs";
import {isHash, useNames} from "./names.mjs";
import {months} from "./range.mjs";
import {stateName} from "./words.mjs";

/** Begin a message of the API like a sentence, unless its first word is a name such as `base_version`. */
const asSentence = (message) => message.replace(/^[a-z](?=[a-z]* )/, (letter) => letter.toUpperCase());

/** An error message, with the age of the figures that the page still shows. */
export function Problem({error, at, retry}) {
  if (!error) return null;
  const isClosed = ["limited_data", "permission_set", "cost_type"].includes(error.type);
  return html`<div class="problem" role="alert">
    <p><strong>${isClosed ? "You do not have access to this." : error.status ? "Tollhouse could not load this." : "No connection."}</strong> ${asSentence(error.message)}
      ${at && html` The figures below are from ${clockTime(at)}.`}</p>
    ${retry && !isClosed && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

/**
 * The result of a query. Until it arrives, `blocks` ("tiles", "line", "chart" or "table") reserve about the same height. While a new
 * query runs, the earlier result stays visible in grey.
 */
export function Loading({of, blocks = ["table"], children}) {
  if (of.data) return html`<div class=${of.isOld ? "old" : undefined} aria-busy=${of.isOld ? "true" : undefined}>${children}</div>`;
  return !of.error && html`<div role="status"><span class="unseen">Loading ...</span>
    ${blocks.map((each, place) => html`<div key=${place} class=${`skeleton ${each}`} aria-hidden="true"></div>`)}</div>`;
}

/** Return the month in the address, or the running one. */
export const chosenMonth = (query) => query.get("month") ?? months()[0];

/** The choice of one of the newest twelve months, or of the month in the address. `others`: parameters that stay. */
export const MonthChoice = ({path, month, others}) => html`<label>Month <select value=${month} onChange=${(event) => go(to(path, {...others, month: event.target.value}))}>
  ${[...new Set([...months(), month])].map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>`;

/** A note for a response that has only the largest rows. */
export const Cut = ({shown, of}) => html`<p role="note">Showing the largest ${exactCount(shown)} of ${exactCount(of)} rows. The row (other) adds up the rest, so totals are exact. CSV has every row.</p>`;

/** The groups that changed a cost most, each with its change and the reason, and a link to all parts of the change. */
export const Drivers = ({drivers, write, href, all}) => html`<ul class="drivers">${drivers.map(({names: [name], change, reason}) => html`<li key=${name}>
    <a href=${href(name)} title=${name}>${name}</a> <b class="number">${change.startsWith("-") ? "" : "+"}${write(change)}</b> <span class="faint">${reason}</span></li>`)}
  <li><a href=${all}>All parts of the change</a></li></ul>`;

/** Text with a copy button. If the browser forbids copying, the button selects the text instead. */
export function Copy({text, label}) {
  const [done, setDone] = useState("");
  const copy = async (event) => {
    const box = event.currentTarget.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(text);
      setDone("Copied");
    } catch {
      getSelection().selectAllChildren(box);
      setDone("Selected: press Ctrl+C");
    }
    setTimeout(() => setDone(""), 2500);
  };
  return html`<div class="copy">
    <pre tabindex="0" aria-label=${label}><code>${text}</code></pre>
    <button type="button" onClick=${copy} aria-label=${`Copy ${label}`}>Copy</button>
    <span role="status">${done}</span>
  </div>`;
}

/**
 * A table. `columns`: {title, value(row), kind: "number" | "text" | "act", exact(row): all digits, sort, mark(row): an element before the
 * name, wide: hidden if the window is too narrow; a column with a higher number is hidden first, true is 1}. Instead of value(row), a column
 * of money has money(row), which returns decimal text, and may have `places`, its number of decimals. A phone shows the title, the amount and,
 * in a second line, up to three facts: `onPhone` of a column is "title", "amount" or "fact", and facts(row) of the first column replaces its facts.
 * `isTwoLines`: show the facts in a wide window as well.
 * `foot`: a row of totals. `href(row)`: the link of a row. `isChosen(row)`: whether its panel is open. `sort`: {key, order, by(key)}, used by columns with a sort key.
 */
export function Table({caption, columns: given, rows, identity, href, sort, foot, isChosen, isTwoLines}) {
  const columns = given.map((each) => (each.money ? ofMoney(each, foot ? [...rows, foot] : rows) : each));
  const follow = (address) => (event) => event.target.closest("a, button, input") || !getSelection().isCollapsed || go(address);
  const hashes = rows.flatMap((row) => columns.map((each) => each.value(row)).filter(isHash));
  const nameOf = useNames(hashes);
  const hasHash = hashes.some((each) => nameOf(each) === each);
  const isPhone = usePhone();
  const {title, facts} = onPhone(columns);
  const lead = {title: isPhone ? title : columns[0], facts: (isPhone || isTwoLines) && facts};
  const [box, latest] = [useRef(null), useRef(columns)];
  latest.current = columns;
  useLayoutEffect(() => fit(box.current, columns));
  useEffect(() => {
    const observer = new ResizeObserver(() => box.current && fit(box.current, latest.current));
    observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  return html`<div ref=${box} class=${`table${isTwoLines ? " two" : ""}`} role="region" aria-label=${caption}><table>
    <caption class="unseen">${caption}</caption>
    <thead><tr>${columns.map((each, place) => head(place ? each : {...each, title: lead.title.title}, sort))}</tr></thead>
    <tbody>${rows.map((row) => {
      const address = href?.(row);
      return html`<tr key=${identity(row)} class=${address && (isChosen?.(row) ? "leads chosen" : "leads")} onClick=${address ? follow(address) : unfold}>
        ${columns.map((each, place) => cell(each, row, place === 0 && lead, address, nameOf))}</tr>`;
    })}</tbody>
    ${foot && html`<tfoot><tr>${columns.map((each, place) => cell(each, foot, place === 0 && lead))}</tr></tfoot>`}
  </table></div>${hasHash && html`<${Hashed} />`}`;
}

/** Return a table column that shows the money in the field `name`. */
export const amount = (title, name, sort) => ({title, sort, kind: "number", money: (row) => row[name]});

/** Write the amounts of a column of money with one number of decimals. */
function ofMoney(column, rows) {
  const places = column.places ?? placesOf(rows.map(column.money));
  return {...column, value: (row) => fixed(column.money(row), places), exact: (row) => ((column.money(row) ?? null) === null ? undefined : `$${column.money(row)}`)};
}

const OF_HASH = 'This code stands for an e-mail address: the setting privacy.emails is "hash".';

/** An explanation under tables that show hashed people. */
const Hashed = () => html`<p class="faint">Codes such as <code>email:f271...</code> stand for e-mail addresses. The setting <code>privacy.emails = "hash"</code>
  keeps Tollhouse from storing the addresses. Set it to <code>"keep"</code> to store addresses from then on, or <a href=${to("/settings", {tab: "names"})}>give names to codes</a>.</p>`;

const PHONE = matchMedia("(max-width: 700px)");
const FACTS = 3;

/** Return whether the window is as narrow as a phone. */
function usePhone() {
  const [isPhone, setPhone] = useState(PHONE.matches);
  useEffect(() => {
    const changed = () => setPhone(PHONE.matches);
    PHONE.addEventListener("change", changed);
    return () => PHONE.removeEventListener("change", changed);
  }, []);
  return isPhone;
}

/** Show the whole name of a row on a phone, and shorten it again. */
const unfold = (event) => event.currentTarget.classList.toggle("whole");

/** Return the columns that a phone shows: the title, the amount, and the facts. */
function onPhone(columns) {
  const shown = columns.filter(({kind}) => kind !== "act");
  const ofKind = (name) => shown.filter((each) => each.onPhone === name);
  const title = ofKind("title")[0] ?? shown[0];
  const rest = shown.filter((each) => each !== title);
  const amount = ofKind("amount")[0] ?? rest.find(({money}) => money) ?? rest.find(({kind, wide}) => /number/.test(kind) && !wide) ?? rest.find(({wide}) => !wide);
  const others = [...rest.filter(({wide}) => !wide), ...rest.filter(({wide}) => wide)].filter((each) => each !== amount);
  return {title, amount, facts: ofKind("fact").length ? ofKind("fact") : others.slice(0, FACTS)};
}

/**
 * On a phone, hide all columns except the name, the amount and the menu. Otherwise hide columns until the table fits its box: first those that are
 * `wide`, from the highest number and from the right, then other columns from the right, those with links and buttons last.
 */
function fit(box, columns) {
  const rows = [...box.querySelectorAll("tr")];
  const hide = (column, isHidden) => rows.forEach(({cells}) => {
    if (cells[column]) cells[column].hidden = isHidden;
  });
  const {amount} = onPhone(columns);
  const isKept = (each) => each === columns[0] || each === amount || each.kind === "act";
  columns.forEach((each, column) => hide(column, PHONE.matches && !isKept(each)));
  if (PHONE.matches) return;
  const leads = (column) => rows.some(({cells}) => cells[column]?.matches("td:has(a, button, summary)"));
  const order = columns.map((each, column) => ({column, wide: each.wide ? Number(each.wide) : leads(column) ? -1 : 0, isKept: isKept(each)}))
    .filter((each) => !each.isKept).sort((a, b) => b.wide - a.wide || b.column - a.column);
  const isTooWide = () => box.scrollWidth > box.clientWidth;
  for (const {column} of order) {
    if (!isTooWide()) return;
    hide(column, true);
  }
}

const classOf = ({kind, wide}) => [kind, wide && "wide"].filter(Boolean).join(" ") || undefined;

function head({title, kind, wide, sort: key}, sort) {
  if (!sort || !key) return html`<th scope="col" class=${classOf({kind, wide})}>${title}</th>`;
  const order = sort.key === key ? sort.order : null;
  return html`<th scope="col" class=${classOf({kind, wide})} aria-sort=${order ? `${order}ending` : undefined}>
    <button type="button" onClick=${() => sort.by(key)}>${title}<span aria-hidden="true">${{asc: " ↑", desc: " ↓"}[order]}</span></button></th>`;
}

const named = (value, nameOf) => (isHash(value) ? nameOf(value) : value);

/** `lead`: of the first column, the column whose value is the row's name, and the facts below it. */
function cell(column, row, lead, address, nameOf = (each) => each) {
  const {value: valueOf, exact} = lead ? lead.title : column;
  const value = valueOf(row);
  const shown = named(value, nameOf);
  const title = exact?.(row) ?? (shown !== value ? value : isHash(value) ? OF_HASH : undefined);
  if (!lead) return html`<td class=${classOf(column)} title=${title}>${shown}</td>`;
  return html`<th scope="row" class=${classOf(column)} title=${title}>${column.mark?.(row)}${address ? html`<a href=${address}>${shown}</a>` : shown}
    ${lead.facts && html`<${Facts} ...${{column, row, lead, nameOf}} />`}</th>`;
}

/** The second line of a row. */
function Facts({column, row, lead, nameOf}) {
  const fact = (each) => {
    const shown = named(each.value(row), nameOf);
    if ([undefined, null, false, "", "–", "unknown"].includes(shown)) return null;
    return /number/.test(each.kind) ? html`${each.title}: ${shown}` : shown;
  };
  const facts = (column.facts?.(row) ?? lead.facts.map(fact)).filter((each) => each && each !== "–");
  const isLong = lead.facts.some(({kind}) => kind === "words");
  return facts.length > 0 && html`<small class=${`faint facts${isLong ? " words" : ""}`}>${facts.map((each, place) => html`${place > 0 && " · "}${each}`)}</small>`;
}

/** Return whether the session has a permission set, or none is needed. */
export const may = (session, needed) => !needed || [needed].flat().some((each) => session.permission_sets.includes(each));

/** Return whether the session may use a page or an action. People with restricted access may not use a page or an action about all calls. */
export const isOpen = (session, {needs, isWhole, hasGroups}) => may(session, needs) && !(isWhole && session.is_limited) && !(hasGroups && !session.min_group);

const STATES = {
  good: ["running", "enrolled", "active", "enabled", "live", "delivered", "resolved", "closed", "accepted", "yes", "reporting", "online"],
  bad: ["parked", "refusing", "revoked", "dead", "failed", "lost", "disabled", "expired", "not live", "unpriced", "error", "losing", "agent_stopped", "at_risk", "overridden", "telemetry_off", "not_configured", "unreachable", "copied"],
  wait: ["pending", "new", "in_progress", "silent", "offline", "delayed", "unseen", "unknown", "open", "orphaned", "connecting", "paused", "stopped", "missing", "replaced"],
};
const ICONS = {good: "✓", bad: "✕", wait: "●", plain: "○"};

/** A state as an icon and a word. `kind` ("good", "bad", "wait", "plain") overrides the list above. */
export function State({word, kind}) {
  const is = kind ?? Object.keys(STATES).find((each) => STATES[each].includes(word)) ?? "plain";
  return html`<span class=${`state ${is}`}><span aria-hidden="true">${ICONS[is]}</span> ${stateName(word)}</span>`;
}

/** Links to the tabs of a page. `tabs` are [name, title]; the first is the default. */
export function Tabs({path, tabs, query}) {
  const now = query.get("tab") ?? tabs[0][0];
  return html`<nav class="tabs" aria-label="Parts of this page">${tabs.map(([name, title]) => html`<a key=${name}
    href=${to(path, {tab: name === tabs[0][0] ? "" : name})} aria-current=${name === now ? "true" : undefined}>${title}</a>`)}</nav>`;
}

/**
 * A modal dialog. Every way of closing it calls `close`. `name` is its class. `opener()` returns the element that gets the focus afterwards;
 * by default, the one that has it now. `pressed` gets its key events,
 * and `clicked` its clicks.
 */
export function Dialog({title, close, children, name, opener, pressed, clicked}) {
  const box = useRef(null);
  useLayoutEffect(() => { // before the next frame, so that a panel that shows another row does not flicker
    const [shown, before] = [box.current, opener?.() ?? document.activeElement];
    shown.showModal();
    (shown.querySelector("[autofocus]") ?? shown.querySelector("form :is(input, select, textarea)"))?.focus();
    return () => {
      shown.close();
      before.focus();
    };
  }, []);
  return html`<dialog ref=${box} class=${name} aria-label=${title} onKeyDown=${pressed} onClick=${clicked} onClose=${(event) => event.target === box.current && close()}>
    <div class="title"><h2>${title}</h2>
      <button type="button" onClick=${() => box.current.close()} aria-label="Close">✕</button></div>
    ${children}</dialog>`;
}

/**
 * A dialog that confirms an action. `fields`: {name, label, type, value, options, note, rows, required, autofocus}; an option is a value or
 * [value, label]. If `type` is a component, it draws checkboxes, and the field's value is the list of checked ones. `exact`: a name
 * that the person must type. `run(values)` may return an element to show afterwards, such as a secret; otherwise the dialog closes.
 */
export function Confirm({title, text, exact, fields = [], danger, run, close}) {
  const [problem, setProblem] = useState("");
  const [shown, setShown] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    if (exact && form.get("exact") !== exact) {
      setProblem(`Type ${exact} exactly.`);
      return;
    }
    setBusy(true);
    try {
      const values = fields.map(({name, type}) => [name, typeof type === "function" ? form.getAll(name) : form.get(name) ?? ""]);
      const found = await run(Object.fromEntries(values));
      if (found) setShown(found);
      else close();
    } catch (error) {
      setProblem(error.message);
    }
    setBusy(false);
  };
  return html`<${Dialog} title=${title} close=${close}>${shown ?? html`<form onSubmit=${submit}>
    ${text && html`<p>${text}</p>`}
    ${fields.map((each) => html`<${Field} key=${each.name} ...${each} />`)}
    ${exact && html`<label>Type <code>${exact}</code> to confirm <input name="exact" autocomplete="off" required /></label>`}
    <p role="alert" class="wrong">${problem}</p>
    <button type="submit" class=${danger ? "main danger" : "main"} disabled=${isBusy}>${title}</button></form>`}<//>`;
}

function Field({name, label, type, value, options = [], note, rows = 12, required, autofocus}) {
  if (typeof type === "function") return html`<${type} ...${{name, label, note, value, options}} />`;
  const hint = note && html`<span class="faint">${note}</span>`;
  const box = type === "select"
    ? html`<select name=${name} defaultValue=${value}>${options.map((each) => {
      const [word, title] = [each].flat();
      return html`<option key=${word} value=${word} selected=${word === value}>${title ?? word}</option>`;
    })}</select>`
    : type === "area" ? html`<textarea name=${name} rows=${rows} required=${required} defaultValue=${value} spellcheck=${false}></textarea>`
      : html`<input name=${name} type=${type ?? "text"} defaultValue=${value} required=${required} autofocus=${autofocus} autocomplete="off" />`;
  return html`<label>${label} ${hint}${box}</label>`;
}

/** Draw the parts of a text in backticks as code. */
export const withCode = (text) => String(text ?? "").split("`").map((part, place) => (place % 2 ? html`<code key=${place}>${part}</code>` : part));

/** Build the form field that chooses one of a row's comments. */
export const commented = (row) => [{name: "comment", label: "Comment", type: "select",
  options: row.comments.map(({id, author, message}) => [id, `${author}: ${message.slice(0, 60)}`])}];

/** A row's columns as a list: the head of its panel. */
export function Columns({of: columns, row}) {
  const values = columns.filter(({kind}) => kind !== "act").map((each) => [each, each.money ? fixed(each.money(row), each.places ?? placesOf([each.money(row)])) : each.value(row)]);
  const nameOf = useNames(values.map(([, value]) => value).filter(isHash));
  return html`<dl class="fields">${values.map(([each, value]) => html`<div key=${each.title}><dt>${each.title}</dt>
    <dd title=${each.exact?.(row)}>${isHash(value) ? nameOf(value) : value || value === 0 ? value : plain(null)}</dd></div>`)}</dl>`;
}

/** The fields of an object as a list; nested objects become nested lists. `leads(name, value)` returns the link of a field, if it has one. */
export function Fields({of, leads}) {
  const fields = Object.entries(of).filter(([, value]) => value !== undefined);
  const nameOf = useNames(fields.map(([, value]) => value).filter(isHash));
  const shown = (name, value) => (isHash(value) ? html`<span title=${nameOf(value) === value ? OF_HASH : value}>${nameOf(value)}</span>` : plain(value, name));
  return html`<dl class="fields">${fields.map(([name, value]) => {
    const address = value && leads?.(name, value);
    return html`<div key=${name}><dt>${titleOf(name)}</dt><dd>${address ? html`<a href=${address}>${shown(name, value)}</a>` : shown(name, value)}</dd></div>`;
  })}</dl>`;
}

const SECONDS = /_s$/;
const NAMES = /^(id|number|port|status|version|first|last|progress)$/; // these numbers are names, so they get no thousands separators
/** Return the title of a field without a title of its own. */
export const titleOf = (name) => name.replace(SECONDS, "").replaceAll("_", " ");

function plain(value, name = "") {
  if ((value ?? "") === "") return html`<span class="faint">none</span>`;
  if (Array.isArray(value)) return value.length ? value.map((each) => html`<div>${plain(each, name)}</div>`) : plain(null);
  if (typeof value === "object") return Object.keys(value).length ? html`<${Fields} of=${value} />` : plain(null);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (name === "state") return stateName(value);
  if (typeof value !== "number" || NAMES.test(name)) return String(value);
  return SECONDS.test(name) ? duration(value * 1000) : exactCount(Number.isInteger(value) ? value : value.toFixed(2));
}
