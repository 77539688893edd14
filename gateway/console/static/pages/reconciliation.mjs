/** Billed costs compared with counted costs: totals, their difference by cause, links to the calls, and the import of bills. */
import {go, to} from "../lib/address.mjs";
import {addressOf, get, isDemo, send} from "../lib/api.mjs";
import {FAMILY} from "../lib/dimensions.mjs";
import {count, exactCount, fixed, minus, percent, placesOf, rounded, sum} from "../lib/format.mjs";
import {html, useState} from "../lib/html.mjs";
import {Copy, Cut, Dialog, MonthChoice, Problem, State, Table, amount, chosenMonth, may, withCode} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";

const PATH = "/reconciliation";
const LEVELS = ["day", "model", "key"];
const KINDS = {differs: "bad", explained: "good", agrees: "good", open: "wait"};
const COMPARED = ["differs", "explained", "agrees"]; // states of days that are compared, trouble first
const LEFT = ["open", "no statement"]; // states of days that are not
const CERTAINTY = {exact: "good", strong: "good"};
const CUT = 4; // bars begin later than at zero if the steps together are less than this part of the total
const SERVED_DAYS = 7; // the default retention of records
const DAY_MS = 86400000;

const spaced = (text) => text.replaceAll("_", " ");
const rowsOf = (number, verb) => `${exactCount(number)} ${number === 1 ? `row ${verb[0]}` : `rows ${verb[1]}`}`;
const tokens = (title, name) => ({title, kind: "number", wide: 4, value: (row) => count(row[name]), exact: (row) => exactCount(row[name])});

/**
 * Round the amounts of a row so that billed - counted = difference = causes + unexplained. The largest cause takes what is left by
 * rounding, and without a cause the whole difference is unexplained. The gateway rounds its own tables in the same way.
 */
function addingUp({billed, counted, unexplained}, causes, places) {
  const difference = minus(rounded(billed, places), rounded(counted, places));
  const rest = causes.length ? rounded(unexplained, places) : difference;
  const amounts = causes.map((each) => rounded(each, places));
  if (causes.length) {
    const sizes = causes.map((each) => Math.abs(Number(each)));
    const largest = sizes.indexOf(Math.max(...sizes));
    amounts[largest] = sum([amounts[largest], minus(minus(difference, rest), sum(amounts))]);
  }
  return {difference, unexplained: rest, explained: minus(difference, rest), amounts};
}

/** Return whether a row can be linked to counted calls. */
const isOurs = (by, row) => row.name !== null && row.name !== "total" && (by === "day" || Object.keys(row.where).length > 0);

/** Return the link to a row's calls that the provider answered. The page behind it shows only stored records. */
const calls = (date, found, where) => to("/calls", {view: null, date, ...found.calls_where, status: ["ok", "error"], ...where});

/** Return the link to the costs of the same calls, which are stored longer than the calls. */
function costs(by, found, {from, to: until}, row) {
  const last = new Date(new Date(until) - 1).toISOString().slice(0, 10);
  const span = by === "day" ? {from: row.name, to: row.name} : {from: from.slice(0, 10), to: last};
  return to("/costs", {view: null, ...span, by: by === "model" ? "api_key" : FAMILY, ...found.calls_where, ...row.where});
}

const first = (by) => ({title: by[0].toUpperCase() + by.slice(1), value: (row) => row.title ?? row.name ?? "unknown"});
const state = {title: "State", wide: 2, onPhone: "fact", value: (row) => (row.state ? html`<${State} word=${row.state} kind=${KINDS[row.state]} />` : "")};

/** Add up rows into one with the title and state. */
function added(rows, title, state) {
  const total = {name: null, title, state, where: {}, causes: {}};
  for (const name of ["billed", "counted", "difference", "unexplained"]) total[name] = sum(rows.map((row) => row[name]));
  for (const name of ["billed_tokens", "counted_tokens"]) total[name] = rows.reduce((so_far, row) => so_far + row[name], 0);
  for (const row of rows) for (const [cause, each] of Object.entries(row.causes)) total.causes[cause] = sum([total.causes[cause] ?? "0", each]);
  return total;
}

/** Join compared days with the same state and causes into one row, those that differ first. */
function folded(rows) {
  const found = new Map();
  for (const row of rows.filter((each) => COMPARED.includes(each.state))) {
    const name = [COMPARED.indexOf(row.state), ...Object.keys(row.causes).sort()].join();
    found.set(name, [...(found.get(name) ?? []), row]);
  }
  return [...found].sort(([one], [other]) => one.localeCompare(other)).map(([, days]) => (days.length === 1 ? days[0]
    : added(days, `${days.length} days ${days[0].state === "agrees" ? "agree" : "like this"}`, days[0].state)));
}

/** The way from counted to billed: a signed step for each cause, and for what no cause explains. The table of causes has the same as text. */
function Waterfall({total, causes, places}) {
  const {unexplained, amounts} = addingUp(total, Object.values(causes), places);
  const named = [...Object.keys(causes).map((name, place) => [name, amounts[place]]), ["unexplained", unexplained]].filter(([, each]) => Number(each));
  const [first, last] = [Number(total.counted), Number(total.billed)];
  let level = first;
  const steps = named.map(([name, each]) => {
    const from = level;
    level += Number(each);
    return {name, from, end: level, text: `${Number(each) < 0 ? "" : "+"}${fixed(each, places)}`};
  });
  const levels = [first, last, ...steps.map(({end}) => end)];
  const [least, most] = [Math.min(...levels), Math.max(...levels)];
  const start = (most - least) * CUT < most ? least - (most - least) / 2 : 0; // small steps on large totals would not be visible
  const x = (value) => (100 * (value - start)) / (most - start);
  const whole = (name, end) => ({name, from: start, end, text: fixed(total[name], places), exact: `$${total[name]}`});
  const rows = [whole("counted", first), ...steps, whole("billed", last)];
  return html`<div class="fall" aria-hidden="true">${rows.map(({name, from, end, text, exact}, place) => html`<span>${spaced(name)}</span>
    <svg viewBox="0 0 100 24" preserveAspectRatio="none"><rect class=${name === "unexplained" && "bad"} x=${x(Math.min(from, end))} width=${Math.abs(x(end) - x(from))} y="4" height="16" />
      ${rows[place + 1] && html`<path d=${`M${x(end)} 20V28`} />`}</svg><span class="number" title=${exact}>${text}</span>`)}
    ${start > 0 && html`<small class="faint">Bars begin at ${fixed(String(start))}.</small>`}</div>`;
}

const callsOf = (found, month, {days, where}) => calls(days.length === 1 ? days[0] : month, found, where);

/** Join causes of the same kind and with the same advice into one row. */
function grouped(causes) {
  const found = new Map();
  causes.forEach((each) => {
    const name = `${each.cause} ${each.sure} ${each.advice}`;
    found.set(name, [...(found.get(name) ?? []), each]);
  });
  return [...found.values()].map((each) => (each.length === 1 ? each[0] : {...each[0], each, where: {},
    amount: sum(each.map((one) => one.amount))}));
}

/** The evidence and amount of each cause in a joined row, with links to its calls. */
const Each = ({row, found, month, places}) => html`<details><summary>${row.each.length} causes, such as: ${withCode(row.each[0].evidence)}</summary>
  <ul>${row.each.map((one) => html`<li key=${one.evidence}>${fixed(one.amount, places)}: ${Object.keys(one.where).length
    ? html`<a href=${callsOf(found, month, one)}>${withCode(one.evidence)}</a>` : withCode(one.evidence)}</li>`)}</ul></details>`;

/** The causes of a difference, and what no cause explains. */
function Causes({found, month, places}) {
  const causes = grouped(found.causes);
  const {difference, unexplained, amounts} = addingUp(found.total, causes.map((each) => each.amount), places);
  const rows = [...causes.map((each, place) => ({...each, shown: amounts[place]})),
    {cause: "unexplained", where: {}, shown: unexplained, amount: found.total.unexplained}];
  const columns = [
    {title: "Cause", value: (row) => spaced(row.cause), facts: (row) => [row.each ? html`<${Each} ...${{row, found, month, places}} />` : row.evidence && withCode(row.evidence),
      row.advice && withCode(row.advice)]},
    {title: "Billed − counted", kind: "number", value: (row) => fixed(row.shown, places), exact: (row) => `$${row.amount}`},
    {title: "Confidence", kind: "words", onPhone: "fact", value: (row) => row.sure && html`<${State} word=${row.sure} kind=${CERTAINTY[row.sure]} />`},
  ];
  return html`<${Table} caption=${`Causes of ${found.provider}`} rows=${rows} columns=${columns} identity=${(row) => `${row.cause} ${row.evidence}`} isTwoLines=${true}
    foot=${{cause: "difference", shown: difference, amount: found.total.difference}}
    href=${(row) => (Object.keys(row.where).length ? callsOf(found, month, row) : undefined)} />`;
}

/** Causes that are only likely, without amounts. */
const Hints = ({found, month}) => html`<h3>Likely causes</h3><p class="faint">They have no amount, because other causes would fit as well. What they
    explain is part of unexplained.</p>
  <ul aria-label=${`Likely causes of ${found.provider}`}>${found.hints.map((each) => html`<li key=${`${each.cause} ${each.evidence}`}>
    <strong>${Object.keys(each.where).length ? html`<a href=${callsOf(found, month, each)}>${spaced(each.cause)}</a>` : spaced(each.cause)}</strong>:${" "}
    ${withCode(each.evidence)}. <span class="faint">${withCode(each.advice)}</span></li>`)}</ul>`;

/** Links to the claim for the discounts that a provider owes. */
function Claim({found, month, places}) {
  const link = (format, title) => html`<a class="button" download href=${addressOf("/reconciliation/claim", {provider: found.provider, month, format})}>${title}</a>`;
  return html`<p class="bar">${found.provider} owes ${fixed(found.owed, places)}. ${link("text", "Download claim")} ${link("csv", "Download claim as CSV")}</p>`;
}

/** The rows of a provider by day, model or key. Days that agree are one row until the person opens them. */
function Rows({found, asked, places}) {
  const [isWhole, setWhole] = useState(false);
  const {by, month} = asked;
  const short = by === "day" ? folded(found.rows) : found.rows;
  const given = isWhole ? found.rows : short;
  if (!found.rows.length) return html`<p class="faint">The bill has no known ${by}s, so Tollhouse compares by ${found.finest}.</p>`;
  const add = (row) => ({...row, shown: addingUp(row, Object.values(row.causes), places)});
  const money = (title, name, wide) => ({title, kind: "number", wide, value: (row) => (LEFT.includes(row.state) ? "–" : fixed(row.shown[name] ?? row[name], places)), exact: (row) => `$${row[name]}`});
  const parts = ({causes, shown}) => Object.keys(causes).map((name, place) => [name, fixed(shown.amounts[place], places)])
    .filter(([, each]) => Number(each.replace(/[$,]/g, ""))).map(([name, each]) => `${spaced(name)} ${each}`).join(", ");
  const columns = [first(by), ...(by === "day" ? [state] : []), money("Billed", "billed"), money("Counted", "counted", 1), {...money("Difference", "difference"), onPhone: "fact"},
    {title: "Causes", kind: "words", wide: 2, value: (row) => (row.name === "total" ? fixed(row.shown.explained, places) : parts(row) || "–")},
    money("Unexplained", "unexplained"), tokens("Tokens billed", "billed_tokens"), tokens("Tokens counted", "counted_tokens"),
    {title: "Costs", wide: 3, value: (row) => isOurs(by, row) && html`<a href=${costs(by, found, asked, row)} aria-label=${`Costs of ${found.provider}, ${row.name}`}>costs</a>`}];
  const left = LEFT.map((word) => [found.rows.filter((row) => row.state === word).length, word === "open" ? "open" : "without a bill"])
    .filter(([days]) => days).map(([days, words]) => `${days} ${words}`);
  return html`<h3>By ${by}</h3>
    ${found.rows.length < found.row_count && html`<${Cut} shown=${found.rows.length - 1} of=${found.row_count} />`}
    ${given.length > 0 && html`<${Table} caption=${`${found.provider} by ${by}`} rows=${given.map(add)} columns=${columns} foot=${add({...found.total, name: "total"})}
      identity=${(row) => String(row.title ?? row.name)}
      href=${(row) => (isOurs(by, row) ? calls(by === "day" ? row.name : month, found, row.where) : undefined)} />`}
    <p class="bar">${left.length > 0 && html`<span class="faint">Days that are not compared: ${left.join(", ")}.</span>`}
      ${short.length < found.rows.length && html`<button type="button" aria-expanded=${isWhole} onClick=${() => setWhole(!isWhole)}>${isWhole ? "Fold days" : "Show each day"}</button>`}</p>`;
}

/** Describe a provider's bill in one sentence. `unexplained` is null until the causes are known. */
function summary({billed, counted}, difference, unexplained, places) {
  const totals = `Billed ${fixed(billed, places)}, counted ${fixed(counted, places)}.`;
  if (!Number(difference)) return `${totals} They agree.`;
  if (unexplained === null) return `${totals} Searching for the causes of the difference ...`;
  const rest = Number(unexplained) ? `${fixed(unexplained, places)} of the difference is unexplained` : `All of ${fixed(difference, places)} is explained`;
  return `${totals} ${rest}.`;
}

/** A provider: totals first, then causes, hints and rows as soon as they are known. */
function Provider({totals, found, asked}) {
  const {provider, total} = totals;
  const places = placesOf([total.billed, total.counted]);
  const {difference} = addingUp({...total, unexplained: "0"}, [], places);
  const unexplained = found ? addingUp(found.total, Object.values(found.total.causes), places).unexplained : null;
  return html`<section aria-label=${provider}><h2>${provider}</h2>
    <p class="why">${summary(total, difference, unexplained, places)}</p>
    <p class="faint">${totals.has_money ? `The bill is from ${totals.sources.join(", ")}.` : "No bill has amounts, so tokens are priced at list prices."}${" "}
      Counted calls have ${percent(total.captured_tokens, total.billed_tokens)} of the billed tokens.</p>
    ${found && Number(difference) !== 0 && html`<${Waterfall} total=${found.total} causes=${found.total.causes} places=${places} />`}
    ${totals.set_aside.length > 0 && html`<p class="faint">Not included, because other bills cover the same days: ${totals.set_aside.join(", ")}.</p>`}
    ${!found ? html`<div role="status"><span class="unseen">Searching for the causes of ${provider} ...</span><div class="skeleton table" aria-hidden="true"></div></div>` : html`
    ${found.causes.length > 0 && html`<h3>Causes</h3><${Causes} ...${{found, month: asked.month, places}} />`}
    ${Number(found.owed) > 0 && html`<${Claim} ...${{found, month: asked.month, places}} />`}
    ${found.hints.length > 0 && html`<${Hints} found=${found} month=${asked.month} />`}
    <${Rows} key=${`${asked.month} ${asked.by}`} ...${{found, asked, places}} />
    ${found.suggestions.length > 0 && html`<h3>Suggested settings</h3><p>Copy them into the configuration to apply them.</p>`}
    ${found.suggestions.map((each) => html`<${Copy} key=${each.toml} text=${each.toml} label=${`${each.kind} for ${each.model ?? each.billed}`} />`)}`}
  </section>`;
}

const perhaps = (number, words) => (number ? [`${exactCount(number)} ${words}`] : []);
const amountsOf = (byCurrency) => Object.entries(byCurrency).map(([code, each]) => (code === "USD" ? fixed(each) : `${rounded(each, 2)} ${code}`)).join(", ");
const REPORT = [
  {title: "Provider", value: (row) => row.providers.join(", ") || "none"},
  {title: "Source", wide: true, value: (row) => `${row.source}${row.account && `, ${row.account}`}`},
  {title: "Months", value: (row) => row.months.join(", ") || "none"},
  {title: "Rows", kind: "number", wide: 2, value: (row) => exactCount(row.rows)},
  {title: "Total", kind: "number", value: (row) => amountsOf(row.amounts) || "no money"},
  {title: "Days", value: (row) => [...perhaps(row.days_new, "new"), ...perhaps(row.days_changed, "changed"),
    ...perhaps(row.days - row.days_new - row.days_changed, "already known")].join(", ") || "none"},
];
const REVISED = [{title: "Day", value: (row) => row.day}, {title: "Stored", kind: "number", value: (row) => fixed(row.billed_before)},
  {title: "New", kind: "number", value: (row) => fixed(row.billed)}];

/** The content of the chosen files, before they are stored. */
const Preview = ({imports}) => html`<${Table} caption="Preview" rows=${imports} columns=${REPORT} identity=${(row) => row.files.join()} />
  ${imports.map((each) => html`<div key=${each.files.join()}>
    ${each.already && html`<p>Already imported as ${each.already}.</p>`}
    ${each.damaged > 0 && html`<h3>${each.files.join(", ")}: ${rowsOf(each.damaged, ["cannot be read", "cannot be read"])}</h3><ul>${each.damaged_rows.map((row) => html`<li key=${row}>${row}</li>`)}</ul>`}
    ${each.repeated > 0 && html`<p>${rowsOf(each.repeated, ["is", "are"])} repeated and counted once.</p>`}
    ${each.equal > 0 && html`<p>${rowsOf(each.equal, ["equals", "equal"])} other rows without an id. All are counted, so check whether the export has them twice.</p>`}
    ${each.revisions.length > 0 && html`<${Table} caption="Changed days" rows=${each.revisions} columns=${REVISED} identity=${(row) => row.day} />`}</div>`)}`;

/** A dialog that imports bills: it shows the content of the files first. */
function Import({close}) {
  const [chosen, setChosen] = useState(null); // the checked form and its preview
  const {data: sources} = useQuery(async () => (await get("/statements", {limit: 1})).filtering.available.find(({field}) => field === "source").valid_values, []);
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const ask = async (form, dry_run) => {
    setBusy(true);
    setProblem("");
    try {
      const query = new URLSearchParams({source: form.get("source"), account: form.get("account").trim(), dry_run,
        replace: form.has("replace")});
      const files = new FormData();
      form.getAll("file").forEach((file) => files.append("file", file));
      const {imports} = await send("POST", `/statement-uploads?${query}`, files);
      if (dry_run) setChosen({form, imports});
      else close();
    } catch (error) {
      setProblem(error.message);
    }
    setBusy(false);
  };
  const submit = (event) => {
    event.preventDefault();
    if (chosen) ask(chosen.form, false);
    else ask(new FormData(event.currentTarget), true);
  };
  return html`<${Dialog} title="Import a bill" close=${close}>${chosen && html`<${Preview} imports=${chosen.imports} />`}<form onSubmit=${submit}>
    ${!chosen && html`
      <label>Files <span class="faint">JSON, CSV or Parquet, also as gzip; choose all files of one export together</span><input type="file" name="file" multiple required
        onChange=${(event) => ask(new FormData(event.currentTarget.form), true)} /></label>
      <label>Source <span class="faint">only if the files are not recognized</span><select name="source"><option value="">recognize each file</option>${(sources ?? []).map((each) => html`
        <option key=${each} value=${each}>${each.replaceAll("_", " ")}</option>`)}</select></label>
      <label>Account <span class="faint">only if you have several; empty: the account in the files</span><input name="account" autocomplete="off" /></label>
      <label class="check"><input type="checkbox" name="replace" /> Final days may lose figures</label>`}
    <p role="alert" class="wrong">${problem}</p>
    <div class="bar"><button type="submit" class="main" disabled=${isBusy}>${chosen ? "Import" : "Preview"}</button>
      ${chosen && html`<button type="button" onClick=${() => setChosen(null)}>Choose other files</button>`}</div></form><//>`;
}

const kind = (title, of, name) => ({title, kind: "number", value: (row) => (row[of] === null ? "–" : count(row[of][name])),
  exact: (row) => (row[of] === null ? "" : exactCount(row[of][name]))});
const SERVED = [
  {title: "Model", value: (row) => row.model ?? "unknown"},
  {title: "Servers", value: (row) => row.servers.join(", ")},
  kind("Input served", "served", "input_tokens"), kind("Input reported", "told", "input_tokens"), kind("Input unreported", "untold", "input_tokens"),
  kind("Output served", "served", "output_tokens"), kind("Output reported", "told", "output_tokens"), kind("Output unreported", "untold", "output_tokens"),
  {title: "Reported by", value: (row) => row.told_by.join(", ") || "nobody"},
];

/** Tokens that model servers counted on a day, next to the reported calls. The two are never added. */
function Served({date, asked}) {
  const {data, error, at, reload} = useQuery(() => get("/served", date ? {date} : {}), [date]);
  if (error?.status === 403) return ""; // people with restricted access do not see server counters
  if (!data) return html`<${Problem} error=${error} at=${at} retry=${reload} />`;
  if (!data.models.length && !date) return "";
  const days = Array.from({length: SERVED_DAYS}, (_, place) => new Date(Date.now() - place * DAY_MS).toISOString().slice(0, 10));
  return html`<section aria-label="Model servers"><h2>Model servers</h2>
    <p class="faint">These counters include every call, so they are never added to calls. Unreported is served minus reported. It is negative if other
      servers also ran the model, or if a counter started later.</p>
    <nav class="bar" aria-label="Day of model servers">${days.map((day) => html`<a key=${day} class="chip" href=${to(PATH, {...asked, served: day})}
      aria-current=${day === data.date ? "true" : undefined}>${day}</a>`)}</nav>
    ${data.looked_through.until && html`<p class="faint">Counters received after ${data.looked_through.until} are not included.</p>`}
    ${data.models.length ? html`<${Table} caption="Served and reported" rows=${data.models} columns=${SERVED} identity=${(row) => String(row.model)} />`
    : html`<p class="faint">No server sent counters on this day.</p>`}</section>`;
}

const CLOSED = [{title: "Provider", value: (row) => row.provider}, amount("Billed", "billed"), amount("Invoiced", "invoiced"),
  amount("Rounding", "rounding"), amount("Difference", "difference"), {title: "Closed by", value: (row) => row.closed_by}];
const invoiced = (title, name) => ({...amount(title, name), value: (row) => amountsOf({[row.currency]: row[name]})});
const INVOICES = [{title: "Provider", value: (row) => row.provider}, {title: "Number", value: (row) => row.number},
  invoiced("Total", "total"), invoiced("Tax", "tax"), {title: "Issued", value: (row) => row.issued ?? ""}];

/** The invoices of a month, and the providers whose month is closed. */
function Closing({month}) {
  const {data, error, reload} = useQuery(async () => {
    const [closed, invoices] = await Promise.all(["/closed-months", "/billed-invoices"].map((path) => get(path, {month, limit: 1000})));
    return {closed: closed.closed_months, invoices: invoices.billed_invoices};
  }, [month], ["statements"]);
  return html`<${Problem} error=${error} retry=${reload} />
    ${data?.invoices.length > 0 && html`<h2>Invoices</h2><${Table} caption="Invoices" rows=${data.invoices} columns=${INVOICES} identity=${(row) => row.id} />`}
    ${data?.closed.length > 0 && html`<h2>Closed</h2><p class="faint">These bills no longer change. Later changes are <a href=${to("/costs",
      {cost_type: "billed_cost", by: "corrects", charge: "restated"})}>restated</a> on the day when they arrive.</p>
      ${data.closed.filter((row) => row.sentence).map((row) => html`<p key=${row.provider}>${row.sentence}.${" "}<span class="faint">Coverage: ${row.token_coverage ?? 0} % of
        tokens, ${row.money_coverage ?? 0} % of money. ${exactCount(row.failed_calls ?? 0)} failed, ${exactCount(row.aborted_calls ?? 0)} aborted and ${exactCount(row.unpriced_calls ?? 0)} unpriced calls.</span></p>`)}
      <${Table} caption="Closed" rows=${data.closed} columns=${CLOSED} identity=${(row) => row.provider} />`}
    ${data?.invoices.length > 0 && !data.closed.length && html`<p class="faint">Close the month with <code>tollhouse billed close</code>.</p>`}`;
}

export function Page({query, session}) {
  const [isOpen, setOpen] = useState(query.has("form"));
  const [month, by] = [chosenMonth(query), query.get("by") ?? LEVELS[0]];
  const totals = useQuery(() => get(PATH, {month, causes: false}), [month], ["ledger", "statements"]);
  const isKnown = totals.data?.reconciliation.month === month;
  const {data: whole, error, at, reload} = useQuery(async () => (isKnown ? get(PATH, {month, by}) : null), [month, by, totals.at]);
  const asked = whole?.reconciliation;
  const found = (name) => asked?.month === month && asked.by === by && whole.providers.find((each) => each.provider === name);
  return html`<div class="bar"><${MonthChoice} path=${PATH} month=${month} others=${{by}} />
      <label>Rows <select value=${by} onChange=${(event) => go(to(PATH, {month, by: event.target.value}))}>${LEVELS.map((name) => html`<option key=${name} value=${name}>by ${name}</option>`)}</select></label>
      ${may(session, "modify_billing") && !isDemo && html`<button type="button" class="main" onClick=${() => setOpen(true)}>Import a bill</button>`}</div>
    ${isOpen && html`<${Import} close=${() => setOpen(false)} />`}
    <${Problem} error=${totals.error ?? error} at=${totals.at && at} retry=${totals.error ? totals.reload : reload} />
    ${isKnown ? html`${totals.data.providers.map((each) => html`<${Provider} key=${each.provider} totals=${each} found=${found(each.provider)} asked=${{...totals.data.reconciliation, by}} />`)}
    ${!totals.data.providers.length && html`<h2>No provider bill for this month</h2><p>Import a provider's invoice or cost file here, or with
      <code>tollhouse reconcile import FILE</code>. Tollhouse then compares it with the counted costs and explains each difference.</p>`}
    ${totals.data.without_statement.length > 0 && html`<h2>Without a provider bill</h2><${Table} caption="Without a provider bill" rows=${totals.data.without_statement}
      columns=${[{title: "Provider", value: (row) => row.provider ?? "unknown"}, amount("Counted", "counted")]} identity=${(row) => String(row.provider)} />`}`
    : !totals.error && html`<div role="status"><p class="faint">Comparing ${month} ...</p><div class="skeleton tiles" aria-hidden="true"></div></div>`}
    <${Closing} month=${month} /><${Served} date=${query.get("served")} asked=${{month, by}} />`;
}
