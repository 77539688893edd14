/** Billed costs compared with counted costs: the difference in parts, its causes, and links to the calls. */
import {to} from "../lib/address.mjs";
import {addressOf, get} from "../lib/api.mjs";
import {FAMILY} from "../lib/dimensions.mjs";
import {count, exactCount, money, percent, sum} from "../lib/format.mjs";
import {html} from "../lib/html.mjs";
import {Copy, Cut, Loading, Problem, State, Table, amount, withCode} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {months} from "../lib/range.mjs";

const PATH = "/reconciliation";
const LEVELS = ["day", "model", "key"];
const KINDS = {agrees: "good", close: "good", differs: "bad", open: "wait"};
const CLOSE = 100; // a difference below 1/100 of the bill is "close"
const CERTAINTY = {exact: "good", strong: "good"};
const SERVED_DAYS = 7; // the default retention of records
const DAY_MS = 86400000;

const spaced = (text) => text.replaceAll("_", " ");
const tokens = (title, name) => ({title, kind: "number", value: (row) => count(row[name]), exact: (row) => exactCount(row[name])});
const MONEY = [amount("Billed", "billed"), amount("Counted", "counted"), amount("Difference", "difference"), amount("Volume", "volume"),
  amount("Rate", "rate"), amount("Other", "other"), amount("Own", "own"), amount("Unexplained", "unexplained")];
const TOKENS = [tokens("Tokens billed", "billed_tokens"), tokens("Tokens counted", "counted_tokens")];

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

const first = (by) => ({title: by[0].toUpperCase() + by.slice(1), value: (row) => row.name ?? "unknown"});
/** Return the state of a row. A difference below 1 % of the bill is only "close". */
const wordOf = (row) => (row.state === "differs" && Math.abs(Number(row.difference)) * CLOSE < Number(row.billed) ? "close" : row.state);
const state = {title: "State", value: (row) => (row.state ? html`<${State} word=${wordOf(row)} kind=${KINDS[wordOf(row)]} />` : "")};
const HINTS = html`<p class="faint">Volume: calls that only one side has. Rate: different prices for the same calls. Other: billed items that are not calls. Own: costs
  reported by sources. Unexplained: the rest. Close: less than 1 % difference.</p>`;

const callsOf = (found, month, {days, where}) => calls(days.length === 1 ? days[0] : month, found, where);

/** Join causes of the same kind and with the same advice into one row. */
function grouped(causes) {
  const found = new Map();
  causes.forEach((each) => {
    const name = `${each.cause} ${each.sure} ${each.advice}`;
    found.set(name, [...(found.get(name) ?? []), each]);
  });
  return [...found.values()].map((each) => (each.length === 1 ? each[0] : {...each[0], each, where: {},
    amount: sum(each.map((one) => one.amount)), tokens: each.reduce((so_far, one) => so_far + (one.tokens ?? 0), 0)}));
}

/** The evidence and amount of each cause in a joined row, with links to its calls. */
const Each = ({row, found, month}) => html`<details><summary>${row.each.length} causes, such as: ${withCode(row.each[0].evidence)}</summary>
  <ul>${row.each.map((one) => html`<li key=${one.evidence}>${money(one.amount)}: ${Object.keys(one.where).length
    ? html`<a href=${callsOf(found, month, one)}>${withCode(one.evidence)}</a>` : withCode(one.evidence)}</li>`)}</ul></details>`;

const CAUSE = {title: "Cause", value: (row) => spaced(row.cause)};
const ADVICE = {title: "What to do", kind: "words", value: (row) => withCode(row.advice)};

const CAUSES = (found, month) => [
  CAUSE,
  amount("Amount", "amount"),
  {title: "Tokens", kind: "number", value: (row) => (row.tokens ? count(row.tokens) : "–"), exact: (row) => exactCount(row.tokens)},
  {title: "Confidence", value: (row) => html`<${State} word=${row.sure} kind=${CERTAINTY[row.sure]} />`},
  {title: "Evidence", kind: "words", value: (row) => (row.each ? html`<${Each} ...${{row, found, month}} />` : withCode(row.evidence))},
  ADVICE,
];

const POSSIBLE = [CAUSE, {title: "Evidence", kind: "words", value: (row) => withCode(row.evidence)}, ADVICE];

/** Return the address of a claim for the discounts that a provider owes. */
const claim = (found, month, format) => addressOf("/reconciliation/claim", {provider: found.provider, month, format});

function Provider({found, asked}) {
  const {total} = found;
  const {by, month} = asked;
  const link = {title: "Costs", value: (row) => isOurs(by, row) && html`<a href=${costs(by, found, asked, row)}
    aria-label=${`Costs of ${found.provider}, ${row.name}`}>costs</a>`};
  const columns = [first(by), ...(by === "day" ? [state] : []), ...MONEY, ...TOKENS, link];
  return html`<section aria-label=${found.provider}><h2>${found.provider}</h2>
    <dl class="numbers">
      <div><dt>Billed</dt><dd title=${`$${total.billed}`}>${money(total.billed)}</dd>
        <dd class="faint">${found.has_money ? `from ${found.sources.join(", ")}` : "no bill has amounts, so tokens are priced at list prices"}</dd></div>
      <div><dt>Counted</dt><dd title=${`$${total.counted}`}>${money(total.counted)}</dd>
        <dd class="faint">${percent(total.captured_tokens, total.billed_tokens)} of the billed tokens</dd></div>
      <div><dt>Difference</dt><dd title=${`$${total.difference}`}>${money(total.difference)}</dd>
        <dd class="faint" title=${`$${total.unexplained}`}>${money(total.unexplained)} unexplained</dd></div></dl>
    ${found.set_aside.length > 0 && html`<p class="faint">Not included, because other bills cover the same days: ${found.set_aside.join(", ")}.</p>`}
    ${found.causes.length > 0 && html`<h3>Causes</h3><${Table} caption=${`Causes of ${found.provider}`} rows=${grouped(found.causes)} columns=${CAUSES(found, month)}
      identity=${(row) => `${row.cause} ${row.evidence}`}
      href=${(row) => (Object.keys(row.where).length ? callsOf(found, month, row) : undefined)} />`}
    ${Number(found.owed) > 0 && html`<p>${found.provider} owes ${money(found.owed)}. Download the claim as
      <a href=${claim(found, month, "text")} download>text</a> or <a href=${claim(found, month, "csv")} download>CSV</a>.</p>`}
    ${found.hints.length > 0 && html`<h3>Possible causes</h3><p class="faint">Their amounts are unexplained, because other causes would fit as well.</p>
      <${Table} caption=${`Possible causes of ${found.provider}`} rows=${found.hints} columns=${POSSIBLE} identity=${(row) => `${row.cause} ${row.evidence}`}
        href=${(row) => (Object.keys(row.where).length ? callsOf(found, month, row) : undefined)} />`}
    <h3>By ${by}</h3>${HINTS}
    ${found.rows.length < found.row_count && html`<${Cut} shown=${found.rows.length - 1} of=${found.row_count} />`}
    ${found.rows.length ? html`<${Table} caption=${`${found.provider} by ${by}`} rows=${found.rows} columns=${columns} foot=${{...total, name: "total"}}
      identity=${(row) => String(row.name)}
      href=${(row) => (isOurs(by, row) ? calls(by === "day" ? row.name : month, found, row.where) : undefined)} />`
    : html`<p class="faint">The bill has no known ${by}s, so Tollhouse compares by ${found.finest}.</p>`}
    ${found.suggestions.length > 0 && html`<h3>Suggested settings</h3><p>Copy them into the configuration to apply them.</p>`}
    ${found.suggestions.map((each) => html`<${Copy} key=${each.toml} text=${each.toml} label=${`${each.kind} for ${each.model ?? each.billed}`} />`)}
  </section>`;
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
    <p class="faint">The counters of model servers include every call, so they are never added to calls. Unreported is served minus reported: calls
      that no source reports. It is negative if other servers also ran the model, or if a counter started later.</p>
    <nav class="bar" aria-label="Day of model servers">${days.map((day) => html`<a key=${day} class="chip" href=${to(PATH, {...asked, served: day})}
      aria-current=${day === data.date ? "true" : undefined}>${day}</a>`)}</nav>
    ${data.looked_through.until && html`<p class="faint">Counters received after ${data.looked_through.until} are not included.</p>`}
    ${data.models.length ? html`<${Table} caption="Served and reported" rows=${data.models} columns=${SERVED} identity=${(row) => String(row.model)} />`
    : html`<p class="faint">No server sent counters on this day.</p>`}</section>`;
}

const CLOSED = [{title: "Provider", value: (row) => row.provider}, amount("Billed", "billed"), amount("Invoiced", "invoiced"),
  amount("Rounding", "rounding"), amount("Difference", "difference"), {title: "Closed by", value: (row) => row.closed_by}];
const INVOICES = [{title: "Provider", value: (row) => row.provider}, {title: "Number", value: (row) => row.number},
  amount("Total", "total"), amount("Tax", "tax"), {title: "Issued", value: (row) => row.issued ?? ""}];

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
      <${Table} caption="Closed" rows=${data.closed} columns=${CLOSED} identity=${(row) => row.provider} />`}
    ${data?.invoices.length > 0 && !data.closed.length && html`<p class="faint">Close the month with <code>tollhouse billed close</code>.</p>`}`;
}

export function Page({query}) {
  const [month, by] = [query.get("month") ?? months()[0], query.get("by") ?? LEVELS[0]];
  const found = useQuery(() => get(PATH, {month, by}), [month, by], ["ledger", "statements"]);
  const {data, error, at, reload} = found;
  const link = (name, changes) => html`<a key=${name} class="chip" href=${to(PATH, {month, by, ...changes})}
    aria-current=${Object.values(changes)[0] === (changes.month ? month : by) ? "true" : undefined}>${name}</a>`;
  return html`<nav class="bar" aria-label="Month">${months().map((name) => link(name, {month: name}))}</nav>
    <nav class="bar" aria-label="Rows">${LEVELS.map((name) => link(`By ${name}`, {by: name}))}</nav>
    <${Problem} error=${error} at=${at} retry=${reload} />
    ${(!data || found.isOld) && !error && html`<p class="faint">Comparing ${month} ...</p>`}
    <${Loading} of=${found} blocks=${["tiles", "table", "table"]}>${data?.providers.map((found) => html`<${Provider} key=${found.provider} found=${found} asked=${data.reconciliation} />`)}
    ${data && !data.providers.length && html`<h2>No provider bill for this month</h2><p>Import a provider's invoice or cost file with
      <code>tollhouse reconcile import FILE</code>. Tollhouse then compares it with the counted costs and explains each difference.</p>`}
    ${data?.without_statement.length > 0 && html`<h2>Without a provider bill</h2><${Table} caption="Without a provider bill" rows=${data.without_statement}
      columns=${[{title: "Provider", value: (row) => row.provider ?? "unknown"}, amount("Counted", "counted")]} identity=${(row) => String(row.provider)} />`}
    <//><${Closing} month=${month} /><${Served} date=${query.get("served")} asked=${{month, by}} />`;
}
