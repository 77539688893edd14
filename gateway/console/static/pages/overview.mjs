/** The overview: what needs attention, and spending by model, team and user. Every figure links to its details. */
import {html, useEffect, useState} from "../lib/html.mjs";
import {go, here, receivedAt, to} from "../lib/address.mjs";
import {get} from "../lib/api.mjs";
import {Attention} from "../lib/attention.mjs";
import {OTHER, StackedBars, UNKNOWN, nameOf, ofNames} from "../lib/chart.mjs";
import {FAMILY, titleOf} from "../lib/dimensions.mjs";
import {ago, bounds, change, counted, dayText, exactCount, fixed, minus, money, per, percent, placesOf, sum} from "../lib/format.mjs";
import {useLive} from "../lib/live.mjs";
import {Marks, wordsByBin} from "../lib/marks.mjs";
import {Copy, Loading, Problem, isOpen} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {RangePicker, day, daysBefore, inAddress, span} from "../lib/range.mjs";

const DAY_MS = 86400000;
const LISTS = [[FAMILY, "Models", "team"], ["team", "Teams", FAMILY], ["user", "Users", FAMILY]];
const UNITS = ["session", "run", "pull_request"];
const OPEN = ["new", "in_progress"];
const all = () => to("/insights", {status: OPEN});

async function load(view, shown) {
  const isUsual = shown.asked === "now-30d"; // the server's default range, which follows the server's clock
  const {overview} = await get("/overview", {view, ...(!isUsual && {from: shown.from, to: shown.to})});
  const now = new Date(overview.now);
  const [begin, end] = [overview.since, overview.last].map((text) => new Date(text));
  const days = Math.round((end - begin) / DAY_MS) + 1;
  const bins = Array.from({length: days}, (_, index) => day(daysBefore(end, days - 1 - index)));
  return {...overview, now, bins, shown};
}

export function Page({session, telemetry, query: at, attention}) {
  const view = at.get("view");
  const shown = span(at);
  const query = useQuery(() => load(view, shown), [view, shown.from, shown.to]);
  const {data} = query;
  const isEmpty = data?.operation && !data.operation.has_records;
  useLive(isEmpty ? ["records"] : ["ledger", "insights", "annotations"], query.reload);
  const demo = html`<${DemoMonth} state=${data?.operation?.demo} ...${{session, isEmpty}} />`;
  return html`
    <${Problem} error=${query.error} at=${query.at} retry=${query.reload} />
    <${Loading} of=${query} blocks=${["tiles", "line", "chart", "chart"]}>
      ${data && (isEmpty ? html`<${FirstRecord} telemetry=${telemetry} />${demo}` : html`<${Figures} ...${{...data, session, view, at, attention}} reload=${query.reload} hidden=${at.getAll("hide")} />${data.operation?.demo !== "none" && demo}`)}<//>`;
}

/** Return why nothing is compared, or null. */
const noPast = ({state, known_from: from}) => (state === "whole" ? null : from ? `no data before ${dayText(from)}` : "no earlier data");
const costs = (parameters) => to("/costs", parameters);
const inWords = ({name}) => name.toLowerCase();

function Figures({session, view, at, attention, shown, reload, hidden, now, forecast, paid, today, month, days, reported, kinds, colours, marks, truncated, insights, lists, bins}) {
  const write = (text) => fixed(text, placesOf([month.cost]));
  const changed = change(month.cost, month.previous?.cost ?? null, write, 1);
  const name = now.toLocaleString("en", {month: "long", timeZone: "UTC"});
  const whole = sum(["0", ...days.map((row) => row.cost)]);
  const isLittle = changed.percent === "–";
  const cells = days.map((row) => ({bin: row.period.slice(0, 10), group: nameOf(row[FAMILY]), amount: row.cost}));
  return html`
    <${Attention} of=${attention} />
    <dl class="numbers">
      <${Tile} term=${`Spend in ${name}`} value=${write(month.cost)} exact=${`$${month.cost}`} href=${costs({from: "this-month", by: FAMILY})}
        note=${noPast(month.past) ?? (changed.percent === "new" ? "no spend on these days of last month" : `${isLittle ? "" : `${changed.percent} `}(${changed.amount || "no change"}) compared with last month`)} />
      <${Tile} term=${`Forecast for ${name}`} value=${forecast ? write(forecast.total) : "–"} href=${costs({from: "this-month", by: FAMILY})}
        note=${forecast ? bounds(forecast, write) : "too early: it needs more days of calls"} />
      ${paid && html`<${Tile} term=${`Paid in ${name}`} value=${write(paid.cost)} exact=${`$${paid.cost}`} href=${costs({from: "this-month", cost_type: "paid_cost", by: "charge"})}
        note=${`includes ${write(paid.seat_fee)} seat fees and ${write(paid.overage)} extra usage, without the usage that seats include`} />`}
      <${Tile} term="Today so far (UTC)" value=${money(today.cost)} exact=${`$${today.cost}`} href=${costs({from: day(now), by: FAMILY, bin: "hourly"})}
        note=${noPast(today.past) ?? `${money(today.previous.cost)} by this hour yesterday`} />
      <${Tile} term=${`Calls in ${name}`} value=${exactCount(month.calls)} href=${costs({from: "this-month", by: FAMILY, measure: "calls"})}
        note=${`${month.calls ? `${money(per(month.cost, month.calls, 1000))} per 1,000 calls · ` : ""}${percent(month.errors, month.calls)} failed`} />
    </dl>
    <div class="bar"><${RangePicker} query=${at} isOfDays=${true} /> <span class="faint">Most expensive:</span>
      ${UNITS.map((by) => html`<a key=${by} href=${costs({...inAddress(shown), by})}>${titleOf(null, by)}s</a>`)}</div>
    <${StackedBars} title=${`Cost by model, ${inWords(shown)}`} ...${{bins, cells: ofNames(cells).cells, colours}} isOpen=${bins.at(-1) === day(now)} isDaily=${true} marks=${wordsByBin(marks, bins)} hidden=${hidden} hide=${(hide) => go(here({hide}))}
      href=${(model) => model !== OTHER && costs({...inAddress(shown), [FAMILY]: model, by: "team"})}
      toBin=${(bin) => go(costs({from: bin, to: bin, by: FAMILY, bin: "hourly"}))}
      toSegment=${(bin, model) => go(costs({from: bin, to: bin, [FAMILY]: model, by: "team"}))} />
    <${Marks} of=${{data: {marks, truncated}, reload}} session=${session} view=${view} />
    <div class="lists">${LISTS.map(([field, title, next]) => html`
      <${Shares} key=${field} ...${{title, field, next, shown, whole}} rows=${lists[field]}>${field === FAMILY && html`<p class="faint">
        <a href=${costs({...inAddress(shown), by: "cost_source"})}>${percent(minus(whole, reported), whole)} of the money is estimated from list prices</a>.
        ${kinds.unpriced > 0 && html` <a href=${isOpen(session, {isWhole: true}) ? to("/prices") : costs({...inAddress(shown), by: FAMILY, measure: "unpriced"})}>
          ${counted(kinds.unpriced, "call has", "calls have")} no price</a>.`}
        ${kinds.without_usage > 0 && html` <a href=${costs({...inAddress(shown), by: "source", measure: "without_usage"})}>
          ${counted(kinds.without_usage, "call reports", "calls report")} no usage</a>.`}</p>`}<//>`)}
      ${insights && html`<${Insights} rows=${insights.rows} more=${insights.total_count} />`}</div>`;
}

const Tile = ({term, value, exact, href, note}) => html`<div><dt>${term}</dt><dd title=${exact}><a href=${href}>${value}</a></dd><dd class="faint">${note}</dd></div>`;

function Shares({title, field, next, shown, rows, whole, children}) {
  const at = inAddress(shown);
  const all = costs({...at, by: field});
  const shares = rows.map((row) => ({name: nameOf(row[field]), cost: row.cost}))
    .sort((a, b) => [UNKNOWN, OTHER].indexOf(a.name) - [UNKNOWN, OTHER].indexOf(b.name) || Number(b.cost) - Number(a.cost));
  return html`<section><h2><a href=${all}>${title}</a> <span class="faint">${inWords(shown)}</span></h2><ol class="shares">${shares.map(({name, cost}) => html`
    <li key=${name}><a class="name" href=${name === OTHER ? all : costs({...at, [field]: name, by: next})} title=${name}>${name}</a>
      <span class="number" title=${`$${cost}`}>${money(cost)}</span>
      <svg aria-hidden="true" width="100%" height="4"><rect width=${`${barWidth(cost, whole)}%`} height="4" rx="2" /></svg>
    </li>`)}</ol>${children}</section>`;
}

const barWidth = (part, whole) => (Number(whole) > 0 ? Math.max(0, Math.min(100, (100 * Number(part)) / Number(whole))) : 0);

function Insights({rows, more}) {
  return html`<section><h2><a href=${all()}>Open insights</a></h2>
    ${rows.length === 0 && html`<p class="faint">No open insights. Tollhouse checks every ten minutes for waste, missing data and unusual spend.</p>`}
    <ul class="insights">${rows.map((row) => html`<li key=${row.id}><a href=${to("/insights", {open: row.id})} title=${row.title}>${row.title}</a>
      <span class="faint">${insightNote(row)}</span></li>`)}</ul>
    ${more > rows.length && html`<p class="faint">and <a href=${all()}>${more - rows.length} more</a></p>`}
  </section>`;
}

function insightNote(row) {
  const seen = `seen ${ago(new Date(Number(row.last_updated) * 1000))}`;
  return Number(row.cost_impact) > 0 ? `${money(row.cost_impact)}${row.category === "delivery" ? " affected" : ""}, ${seen}` : seen;
}

/** The section about the demo month, once its file is loaded. Empty if no demo is possible. */
function DemoMonth({state, ...given}) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    if (state) import("./overview_demo.mjs").then(setFound).catch(() => {}); // an upgrade removed the file, and the page reloads
  }, [state]);
  return state && found && html`<${found.Demo} key=${state} ...${{state, ...given}} />`;
}

/** The page of a gateway without records. It changes when the first record arrives. */
function FirstRecord({telemetry}) {
  const here = receivedAt(telemetry);
  return html`<section class="first"><h2>No records yet</h2>
    <p role="status">This page shows costs as soon as the first record arrives.</p>
    <p class="bar"><a class="button main" href=${to("/connect")}>Connect an assistant, a gateway or an SDK</a></p>
    <h3>Or send an example</h3>
    <${Copy} label="the command that sends an example" text=${`tollhouse send --example litellm --to ${here}`} />
  </section>`;
}
