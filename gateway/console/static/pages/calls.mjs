/** The list of calls, and the details of one: when it happened, its cost and the reason for it, and its deliveries. */
import {go, here, to} from "../lib/address.mjs";
import {html, useEffect} from "../lib/html.mjs";
import {FAMILY, toUnit} from "../lib/dimensions.mjs";
import {ago, count, counted, duration, exactCount, fixed, money} from "../lib/format.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Fields, State, Table, isOpen, may} from "../lib/parts.mjs";
import {UNKNOWN} from "../lib/chart.mjs";
import {RangePicker, span} from "../lib/range.mjs";

const PATH = "/calls";
const LOOK_BACK_MS = 30 * 86400000; // how far back to search for a record that is not among the newest
const what = (row) => row.response_model ?? row.request_model ?? row.model ?? row.event_type ?? row.stream ?? "unknown";
const AMOUNTS = {cost: "cost", tokens: "number of tokens", duration: "duration"};
const clock = (iso) => (iso ? `${iso.slice(0, 10)} ${iso.slice(11, 19)}` : "unknown");

/** Return the cost of a record that totals count, as decimal text, or null. A duplicate has none, because another report of its call is counted. */
function cost(row) {
  if (row.shadow) return null;
  if (row.kind === "usage_metric") return row.unit === "USD" ? row.value : null;
  if (row.kind === "correction") return row.cost;
  return {reported: row.cost, estimated: row.estimated_cost}[row.cost_source] ?? null;
}

/** Return input plus output tokens of a call, or the value of a counter, or null. */
function tokens(row) {
  if (row.kind === "usage_metric") return row.unit === "USD" ? null : row.value;
  return row.input_tokens === null && row.output_tokens === null ? null : (row.input_tokens ?? 0) + (row.output_tokens ?? 0);
}

const number = (title, value) => ({title, kind: "number", value: (row) => ((value(row) ?? null) === null ? "–"
  : count(value(row))), exact: (row) => exactCount(value(row))});

/** Columns of a table of records, on this page and in the live tail. */
export const COLUMNS = [
  {title: "Started (UTC)", value: (row) => clock(row.start_time).replace(/^\d+-/, ""), exact: (row) => row.start_time, sort: "start_time"},
  {title: "Model or type", value: what, onPhone: "title"},
  {title: "Cost", kind: "number", exact: cost, sort: "cost", order: "desc", value: (row) => ((row.kind === "inference" && !row.shadow) || cost(row) !== null
    ? html`${row.cost_source === "estimated" && html`<span class="faint">est. </span>`}${fixed(cost(row), 4)}` : "–")},
  {...number("Tokens", tokens), wide: true, sort: "tokens", order: "desc", exact: (row) => (row.kind === "inference"
    ? `${exactCount(row.input_tokens)} in, ${exactCount(row.output_tokens)} out` : exactCount(tokens(row)))},
  {title: "Duration", kind: "number", wide: true, sort: "duration", order: "desc", value: (row) => (row.start_time && row.end_time && row.kind === "inference"
    ? duration(new Date(row.end_time) - new Date(row.start_time)) : "–")},
  {title: "Status", wide: true, value: (row) => (row.status ? html`<${State} word=${row.status} kind=${KINDS[row.status]} />` : "–")},
  {title: "Team", wide: true, value: (row) => row.team ?? "unknown"},
  {title: "User", value: (row) => row.user ?? "unknown"},
  {title: "Source", wide: true, value: (row) => row.source},
];
const KINDS = {ok: "good", error: "bad"};

/** Return the address of a record's details. */
export const toRecord = (row) => to(PATH, {open: row.id});

const LIST = {
  path: "/records", root: "records", at: PATH, caption: "records", what: ["records"], inView: true, most: 200, page: 40, columns: COLUMNS,
  ask: (query) => (isOfSpan(query) ? {from: span(query).from, to: span(query).to, tz: query.get("tz")} : {}),
  asked: (filters) => filters.flatMap(([name, value]) => (value === UNKNOWN ? [[name, ""], [name, UNKNOWN]] : [[name, value]])),
  hints: {cost: ">0.5", tokens: ">100000", duration: ">30", date: "2026-11-20"}, Above: Span,
  identity: (row) => row.id, heading, Details: Call, fields: ({record}) => record, leads: (name, value, {record}, session) => placeOf(name, value, record, session),
  show: (id) => `/records/${encodeURIComponent(id)}?since=${new Date(Date.now() - LOOK_BACK_MS).toISOString().slice(0, 10)}`,
  Before: Looked,
  empty: html`<h2>No records yet</h2><p><a href=${to("/connect")}>Connect a sender</a>, and its calls appear here.</p>`,
};

/** Return whether the page shows a time range by cost, tokens or duration, instead of the newest calls. */
const isOfSpan = (query) => !query.has("date") && (query.get("sort") in AMOUNTS || Object.keys(AMOUNTS).some((name) => query.has(name)));

/** The range picker of the most expensive calls, or a link to them. */
function Span({query}) {
  if (isOfSpan(query)) return html`<div class="bar"><${RangePicker} query=${query} /> <a href=${here({sort: "", order: "", ...NO_BOUNDS})}>Newest calls</a></div>`;
  return html`<p class="bar"><a href=${here({sort: "cost", order: "desc", date: ""})}>Top calls by cost</a></p>`;
}
const NO_BOUNDS = Object.fromEntries(Object.keys(AMOUNTS).map((name) => [name, ""]));

/** A note on the records that were searched for the top calls. */
function LookedAtSpan({answer, query}) {
  const {records, most, since, until} = answer.looked_through;
  const by = AMOUNTS[query.get("sort")];
  return html`<p class="faint">${by && html`Top calls by ${by}, ${span(query).name.toLowerCase()}. `}Tollhouse searched
    ${" "}${exactCount(records)} stored records${since && html`, received ${until ? html`from ${clock(since)} to ${clock(until)}` : html`since ${clock(since)}`} UTC`}.
    ${records >= most && " It did not search older records. Choose fewer days to include all of them."} Records are stored
    only for a limited time; <a href=${to("/costs", {from: query.get("from"), to: query.get("to"), tz: query.get("tz"), ...kept(answer)})}>the costs of
    these dates</a> are stored longer.</p>`;
}

/** A note on the records that were searched for this page. */
function Looked({answer, query}) {
  if (isOfSpan(query)) return html`<${LookedAtSpan} answer=${answer} query=${query} />`;
  const {records, since, until} = answer.looked_through;
  const dates = answer.filtering.current.date;
  if (!dates) {
    return records > 0 && html`<p class="faint">Tollhouse searched the newest ${counted(records, "call")}${since && html` (received since ${clock(since)} UTC)`}.
      ${" "}Add a filter by date to see older calls.</p>`;
  }
  const ends = [...dates].sort();
  return html`<p class="faint">${ends.join(", ")} (UTC): Tollhouse searched ${exactCount(records)} records${since && html`, received
    from ${clock(since)} ${until ? html`to ${clock(until)}; it did not search later records` : "on"}`}. Records are stored
    only for a limited time; <a href=${to("/costs", {from: dayOf(ends[0], 1), to: dayOf(ends.at(-1), 31), ...kept(answer)})}>the costs of
    these dates</a> are stored longer.</p>`;
}

/** Return a day unchanged, or the first or last day of a month. */
const dayOf = (date, day) => (date.length > 7 ? date
  : new Date(Date.UTC(date.slice(0, 4), date.slice(5, 7) - (day === 1 ? 1 : 0), day === 1 ? 1 : 0)).toISOString().slice(0, 10));
/** Return the filters of a response that the Costs page also has. */
const kept = ({filtering: {current: {date, state, kind, topic, session, view, from, to: until, range, tz, cost: bound, tokens: most, duration: took, ...others}}}) => others;

const WHO_AND_WHERE = ["user", "team", "sender", "device", "source", "api_key", "provider", "region"];

/** Name a call by its model, its cost and its start, such as "gemini-2.5-pro, $1.04, 16 Nov 10:28". */
function heading({record}) {
  const {start_time: start} = record;
  const at = start && new Date(start).toLocaleString("en-GB", {timeZone: "UTC", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit"}).replace(",", "");
  return [what(record), cost(record) && money(cost(record)), at].filter(Boolean).join(", ");
}

function Call({row: {record, work, why, price_lines, routes, not_stored, corrections = [], corrected_cost, ...place}, session}) {
  const leads = (name, value) => placeOf(name, value, record, session);
  const known = WHO_AND_WHERE.filter((name) => record[name]).map((name) => [name, record[name]]);
  return html`
    ${known.length > 0 && html`<h3>Who and where</h3><${Fields} of=${Object.fromEntries(known)} leads=${leads} />`}
    ${Object.keys(work).length > 0 && html`<h3>Part of</h3><${Fields} of=${work} leads=${(name, value) => (may(session, "view_costs") ? toUnit(name, value) : null)} />`}
    ${place.state === "open" && html`<p><${State} word="open" /> A later report of the same call may still fill in unknown
      values.</p>`}
    <h3>What happened</h3><ol class="timeline">${steps(record, place).map(([at, text]) => html`<li key=${text}>
      <span class="faint">${clock(at)}</span> ${text}</li>`)}</ol>
    ${corrections.length > 0 && html`<h3>Corrections by later reports</h3><${Table} caption="Corrections" rows=${corrections}
      columns=${CORRECTIONS} identity=${(each) => each.id} /><p>With these corrections, the call costs ${money(corrected_cost)}.</p>`}
    ${price_lines.length > 0 && html`<h3>How the estimate was calculated</h3><${Table} caption="Price lines" rows=${price_lines}
      columns=${PRICES} identity=${(line) => line.of} />`}
    ${Object.keys(why).length > 0 && html`<h3>Why</h3><${Fields} of=${why} />`}
    ${routes.length > 0 && html`<h3>Deliveries</h3><${Table} caption="Routes" rows=${routes} columns=${ROUTES}
      identity=${(each) => each.route} />`}
    <p class="faint">Not stored: ${not_stored.join("; ")}.</p>`;
}

const IN_COSTS = ["team", "user", "source", "request_model", "api_key", "region"];
const IN_OPERATION = {sender: "/keys", device: "/devices"};

/** Return the link of a record's field: costs since the day of the call, or the page of a key or device. Null if it is not open to the person. */
function placeOf(name, value, {start_time: start}, session) {
  if (IN_OPERATION[name]) return isOpen(session, {needs: "view_operation", isWhole: true}) ? to(IN_OPERATION[name], {open: value}) : null;
  return IN_COSTS.includes(name) && may(session, "view_costs") ? to("/costs", {[name]: value, from: start?.slice(0, 10), by: FAMILY}) : null;
}

const CORRECTIONS = [
  {title: "Received (UTC)", value: (each) => clock(each.known_at)},
  {title: "Why", value: (each) => each.reason.replaceAll("_", " ")},
  {title: "Reported by", value: (each) => each.source},
  {title: "Cost", kind: "number", money: (each) => each.cost},
  {...number("Tokens", tokens)},
];

const quantity = (line) => (typeof line.quantity === "number" ? exactCount(line.quantity) : line.quantity);
const PRICES = [
  {title: "Item", value: (line) => line.of, facts: (line) => [`${quantity(line)} at $${line.price} per ${line.per}`]},
  {title: "Quantity", kind: "number", wide: true, value: quantity},
  {title: "Dollars", kind: "number", wide: 2, value: (line) => line.price},
  {title: "Per", wide: 3, value: (line) => line.per},
  {title: "Amount", kind: "number", money: (line) => line.amount, places: 4},
];

const ROUTES = [
  {title: "Route", value: (each) => html`<a href=${to("/delivery", {open: each.route})}>${each.route}</a>`},
  {title: "This record", value: (each) => html`<${State} word=${each.state === "passed" ? "delivered" : each.state} kind=${{passed: "good", dead: "bad"}[each.state] ?? "wait"} />`},
  {title: "Last error", value: (each) => each.last_error ?? ""},
];

/** List the steps of a call as [time, text], in time order. */
function steps(record, {topic, number: place, committed_at}) {
  const {start_time, end_time, status, error_type} = record;
  const took = start_time && end_time ? ` after ${duration(new Date(end_time) - new Date(start_time))}` : "";
  return [
    start_time && [start_time, `${record.operation ?? record.kind.replaceAll("_", " ")} of ${what(record)} began`],
    end_time && [end_time, `it ended${took}${status ? ` as ${status}` : ""}${error_type ? `: ${error_type}` : ""}`],
    committed_at && [committed_at, `the report by ${record.source} was stored on disk${place === null ? "" : ` as number ${place} of ${topic}`}, ${ago(committed_at)}`],
  ].filter(Boolean);
}

/** An address with `id`, and the filter of this name, open the call, also if it is not among the newest. */
export function Page(given) {
  const id = given.query.get("id");
  useEffect(() => {
    if (id) go(here({id: "", open: id}), {replaces: true});
  }, [id]);
  return !id && html`<${ListPage} list=${LIST} ...${given} />`;
}
