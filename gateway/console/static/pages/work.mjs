/** One session, agent run, pull request or other unit of work: its cost, its agent runs, its calls and its links. */
import {to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {FAMILY, WORK, titleOf, toUnit} from "../lib/dimensions.mjs";
import {counted, exactCount, money} from "../lib/format.mjs";
import {html, useState} from "../lib/html.mjs";
import {menuColumn} from "../lib/menu.mjs";
import {Confirm, Loading, Problem, Table, isOpen, may} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {RangePicker, inAddress, span} from "../lib/range.mjs";
import {COLUMNS} from "./calls.mjs";

const RANGE = "now-90d";
const SOURCES = ["session", "branch", "commit"]; // units that can be linked to a target
const TARGETS = ["pull_request", "ticket"];
const MOST_CALLS = 10;
const [START, MODEL, COST, ...REST] = COLUMNS;

const titled = (unit) => titleOf(null, unit);
const calls = ({calls: number}) => counted(number, "call");

export function Page({query, session}) {
  const [unit, id] = [query.get("unit"), query.get("id")];
  return WORK.includes(unit) && id ? html`<${Unit} key=${`${unit} ${id}`} ...${{unit, id, query, session}} />` : html`<${Finder} />`;
}

/** The page without a unit: where to find one, and how calls get units. */
const Finder = () => html`<section><p>A unit of work is the purpose of calls. Show the most expensive
    ${WORK.map((each, place) => html`${place > 0 && " · "}<a key=${each} href=${to("/costs", {by: each})}>${titled(each)}</a>`)},
    or search for <code>pull_request:acme/shop#42</code>.</p>
  <h2>How calls get units</h2><p><a href=${to("/connect")}>Assistants and agent SDKs</a> state their sessions and runs. For pull requests, start programs with
    ${" "}<code>OTEL_RESOURCE_ATTRIBUTES=vcs.repository.url.full=https://github.com/acme/shop,vcs.change.id=42</code>, or link a session or a branch on its page.
    See <i>Costs and usage</i> in the documentation.</p></section>`;

async function load(unit, id, when) {
  const [found, {rows}] = await Promise.all([get(`/work/${unit}/${encodeURIComponent(id)}`, when), get("/report", {...when, where: `${unit}=${id}`, per: "daily", show: "calls"})]);
  const days = rows.filter((row) => row.calls).map(({period}) => period.slice(0, 10)).sort();
  return {...found, first: days[0], last: days.at(-1)};
}

function Unit({unit, id, query, session}) {
  const range = span(query, RANGE);
  const {from, to: until, name} = range;
  const when = inAddress(range);
  const found = useQuery(() => load(unit, id, {from, to: until}), [from, until], ["ledger"]);
  const {data} = found;
  const given = {unit, id: data?.work.id ?? id, when, session};
  return html`<h2>${titled(unit).replace(/^./, (letter) => letter.toUpperCase())} ${given.id}</h2>
    <div class="bar"><${RangePicker} query=${query} byDefault=${RANGE} isOfDays=${true} />
      ${[FAMILY, "user", "session"].map((by) => by !== unit && html`<a key=${by} href=${to("/costs", {[unit]: given.id, by, ...when})}>Costs by ${titled(by)}</a>`)}</div>
    <${Problem} error=${found.error} at=${found.at} retry=${found.reload} />
    <${Loading} of=${found} blocks=${["tiles", "table"]}>${data && (data.last || data.aggregated?.calls ? html`
      <${Figures} ...${data} range=${name} /><${Runs} ...${{...data, ...given}} />${data.last && may(session, "view_records") && html`<${Calls} ...${{...data, ...given}} />
        ${unit === "session" && html`<${Waste} ...${{...data, ...given}} />`}`}`
      : html`<section><p>No calls: ${name}. Choose other days, or check the id.</p></section>`)}<//>
    ${[...SOURCES, ...TARGETS].includes(unit) && isOpen(session, {isWhole: true}) && html`<${Links} ...${given} changed=${found.reload} />`}`;
}

const tile = (term, value, note, exact) => html`<div><dt>${term}</dt><dd title=${exact}>${value}</dd><dd class="faint">${note}</dd></div>`;
const cost = (term, sums, note) => tile(term, money(sums.cost), `${calls(sums)}${note}`, `$${sums.cost}`);

const Figures = ({work, own, aggregated, first, last, range}) => html`<dl class="numbers">
  ${cost("Cost", own, own.errors > 0 ? `, ${exactCount(own.errors)} failed` : "")}
  ${aggregated && aggregated.calls !== own.calls && cost("With started runs", aggregated, ", also of other sessions")}
  ${last && tile("Last day with calls", last, `first day ${first} (${range}, UTC)`)}</dl>
  ${work.continues && html`<p role="note">It has more calls in the day before or after this time.</p>`}`;

/** The agent runs as a tree, and the runs or sessions that started them. */
function Runs({work, own, without_run: without, other_runs: others, started_by: above, started_sessions: started, runs, unit, when}) {
  const rest = [[without, "calls without a run"], [others, "(other runs)"]].filter(([sums]) => sums.calls).map(([sums, name]) => ({name, own: sums, aggregated: sums, level: 1}));
  const spend = (title, of) => ({title, kind: "number", money: (row) => row[of].cost});
  const link = (of, id) => html`<a href=${toUnit(of, id, when)}>${id}</a>`;
  const columns = [
    {title: "Run", mark: (row) => "\u2003".repeat(row.level - 1), value: (row) => row.name ?? (row.agents.join(", ") || row.run), exact: (row) => row.run,
      facts: (row) => [row.aggregated.calls !== row.own.calls && `${money(row.aggregated.cost)} with started runs`]},
    spend("Own cost", "own"), spend("With started runs", "aggregated"),
    {title: "Calls", kind: "number", value: (row) => exactCount(row.own.calls)},
    {title: "Started runs", kind: "number", wide: 2, value: (row) => row.delegations ?? "–"},
    {title: "Session", wide: 1, value: (row) => (row.session ? link("session", row.session) : "–")},
  ];
  return html`<section aria-label="Agent runs"><h2>Agent runs</h2>
    ${above.length > 0 && html`<p>Started by ${above.map(({run, session}, place) => html`${place > 0 && ", "}${run ? "run" : "session"} ${run ? link("run", run) : link("session", session)}`)}.</p>`}
    ${started.length > 0 && html`<p>Linked as started by it: ${started.map((row, place) => html`${place > 0 && ", "}session ${link("session", row.session)} (${money(row.aggregated.cost)})`)}.</p>`}
    ${runs.length ? html`<${Table} caption="Agent runs" columns=${columns} rows=${[...runs, ...rest]} identity=${(row) => row.run ?? row.name}
      href=${(row) => (row.run && row.run !== work.id ? toUnit("run", row.run, when) : null)} />` : html`<p class="faint">${own.calls > 0 && "Its calls name no run of an agent."}</p>`}</section>`;
}

/** The most expensive calls, as long as calls are stored, and links to the lists of calls. */
function Calls({unit, id, own, first, last}) {
  const found = useQuery(() => get("/records", {[unit]: id, from: first, to: last, sort_key: "cost", sort_order: "desc", limit: MOST_CALLS}), [first, last, own.calls]);
  const {records: rows, looked_through: searched} = found.data ?? {};
  const stated = rows?.[0]?.[unit]; // lists and costs have a digest instead
  const top = {[unit]: id, from: first, to: last, sort: "cost", order: "desc"};
  return html`<section aria-label="Calls"><h2>Calls</h2>
    <p class="bar"><a href=${to("/calls", top)}>Top calls</a> <a href=${to("/calls", {[unit]: id, date: last})}>Calls of the last day</a></p>
    ${["session", "run"].includes(unit) && stated && html`<p>Reported as <code>${stated}</code>.</p>`}
    <${Problem} error=${found.error} at=${found.at} retry=${found.reload} />
    <${Loading} of=${found}>${rows && (rows.length ? html`<${Table} caption="Calls" columns=${[START, COST, MODEL, ...REST]} rows=${rows} identity=${(row) => row.id}
      href=${(row) => to("/calls", {...top, open: row.id})} />` : html`<p class="faint">No calls found. Calls are stored for a limited time, their costs longer.</p>`)}
    ${searched?.records >= searched?.most && html`<p class="faint">Tollhouse searched only the newest ${exactCount(searched.records)} records of these days.</p>`}<//></section>`;
}

/** Which part of the cost of each stored call of a session was paid again, on request because it reads the stored calls. */
function Waste({id, first, last}) {
  const [isShown, setShown] = useState(false);
  return html`<section aria-label="Waste"><h2>Waste</h2>
    ${isShown ? html`<${WasteTable} ...${{id, first, last}} />` : html`<p class="bar"><button type="button" onClick=${() => setShown(true)}>Show what was paid again</button></p>`}</section>`;
}

function WasteTable({id, first, last}) {
  const found = useQuery(() => get(`/work/session/${encodeURIComponent(id)}/waste`, {from: first, to: last}), [id, first, last]);
  const {waste, calls: rows} = found.data ?? {};
  const again = (parts) => parts.map(({kind, amount}) => `${kind.replace("_", " ")} ${money(amount)}`).join(", ");
  const columns = [
    {title: "Began", value: (row) => row.start_time ?? "unknown"},
    {title: "Conversation", value: (row) => row.lane ?? "(no lane)"},
    {title: "Paid again", value: (row) => again(row.parts) || "–", exact: (row) => row.parts.map(({kind, formula}) => `${kind}: ${formula}`).join("; ")},
    {title: "Cost", kind: "number", money: (row) => row.cost}, {title: "Useful", kind: "number", money: (row) => row.useful},
    {title: "Not judged", kind: "number", money: (row) => row.not_judged, exact: (row) => row.reason},
    ...[["Input", "input_tokens"], ["Read", "cache_read_tokens"], ["Written", "cache_write_tokens"]].map(([title, name]) => ({title, kind: "number", wide: 2, value: (row) => (row[name] === null ? "–" : exactCount(row[name]))})),
  ];
  return html`<${Problem} error=${found.error} at=${found.at} retry=${found.reload} />
    <${Loading} of=${found}>${waste && html`<p>${[`Of ${money(waste.cost)}, ${money(waste.useful)} was useful`, ...Object.entries(waste.amounts).map(([kind, amount]) => `${kind.replace("_", " ")} ${money(amount)}`), `and ${money(waste.not_judged)} is not judged.`].join(", ")}</p>
      <${Table} caption="Waste" columns=${columns} rows=${rows} identity=${(row) => row.id} href=${(row) => to("/calls", {session: id, from: first, to: last, open: row.id})} />`}<//>`;
}

/** The links of the unit, and forms to add and to delete one. */
function Links({unit, id, when, session, changed}) {
  const found = useQuery(async () => (await get("/work/links", {[unit]: id, limit: 1000})).work_links, [id]);
  const [form, setForm] = useState(null);
  const mayLink = may(session, "modify_dimension_definitions");
  const isTarget = TARGETS.includes(unit);
  const others = isTarget ? SOURCES : TARGETS;
  const otherOf = (row) => others.find((each) => row[each]) ?? "session"; // a session may also be linked to its parent
  const idOf = (row) => row[others.find((each) => row[each]) ?? "parent_session"];
  const nameOf = (row) => `${titled(otherOf(row))} ${idOf(row)}`;
  const done = () => {
    found.reload();
    changed();
  };
  const title = isTarget ? "Link a session, branch or commit" : "Link to a pull request or ticket";
  const link = {
    title, text: "The link applies to past and later calls that state no pull request or ticket themselves.",
    fields: [{name: "name", label: isTarget ? "Id or name" : "Pull request or ticket", required: true},
      {name: "kind", label: "Kind", type: "select", options: others.map((each) => [each, titled(each)])},
      ...(isTarget || unit === "branch" ? [{name: "repository", label: "Repository of the branch"}, {name: "since", label: "First day of the branch (optional)", type: "date"},
        {name: "until", label: "Last day of the branch (optional)", type: "date"}] : [])],
    run: ({kind, name, ...more}) => send("POST", "/work/links", {[unit]: id, [kind]: name.trim(), ...more}).then(done),
  };
  const unlink = (row) => ({title: "Unlink", danger: true, text: `The link with ${nameOf(row)} no longer applies, also to past calls.`,
    run: () => send("DELETE", `/work/links/${row.id}`).then(done)});
  const columns = [
    {title: "Linked", value: nameOf},
    {title: "Days", wide: 2, value: (row) => (row.since || row.until ? `${row.since || "beginning"} to ${row.until || "now"}` : "all")},
    {title: "Linked by", value: (row) => row.author, exact: (row) => row.created},
    mayLink && menuColumn(nameOf, (row) => [{title: "Unlink", danger: true, act: () => setForm(unlink(row))}]),
  ].filter(Boolean);
  return html`<section aria-label="Links"><h2>Links</h2>
    <${Problem} error=${found.error} at=${found.at} retry=${found.reload} />
    ${found.data && (found.data.length ? html`<${Table} caption="Links" columns=${columns} rows=${found.data} identity=${(row) => row.id} href=${(row) => toUnit(otherOf(row), idOf(row), when)} />`
      : html`<p class="faint">No links. Calls that state their pull request and ticket need none.</p>`)}
    ${mayLink && html`<p class="bar"><button type="button" onClick=${() => setForm(link)}>${title}</button></p>`}
    ${form && html`<${Confirm} ...${form} close=${() => setForm(null)} />`}</section>`;
}
