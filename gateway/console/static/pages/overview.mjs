/** The overview: what needs attention, and spending by model, team and user. Every figure links to its details. */
import {html, useEffect, useState} from "../lib/html.mjs";
import {go, here, receivedAt, to} from "../lib/address.mjs";
import {get} from "../lib/api.mjs";
import {Attention} from "../lib/attention.mjs";
import {OTHER, StackedBars, Switch, UNKNOWN, nameOf, ofNames, painted, ranked} from "../lib/chart.mjs";
import {FAMILY, setUp, titleOf} from "../lib/dimensions.mjs";
import {ago, bounds, change, counted, dayText, exactCount, minus, money, per, percent, sum, timeText} from "../lib/format.mjs";
import {useLive} from "../lib/live.mjs";
import {Marks, wordsByBin} from "../lib/marks.mjs";
import {writerOf} from "../lib/measures.mjs";
import {Copy, Drivers, Loading, Problem, isOpen} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {RangePicker, day, daysBefore, inAddress, span} from "../lib/range.mjs";

const DAY_MS = 86400000;
const LISTS = [[FAMILY, "Models", "team"], ["team", "Teams", FAMILY], ["user", "Users", FAMILY]];
const UNITS = ["session", "run", "pull_request"];
const OPEN = ["new", "in_progress"];
const SEVERITIES = {critical: "bad", warning: "wait"};
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
      ${data && (isEmpty ? html`${attention.data?.causes.some(({kind}) => kind !== "no_channel") && html`<${Attention} of=${attention} />`}<${FirstRecord} telemetry=${telemetry} />${demo}` : html`<${Figures} ...${{...data, session, view, at, attention}} reload=${query.reload} hidden=${at.getAll("hide")} />${data.operation?.demo !== "none" && demo}`)}<//>`;
}

/** Return why nothing is compared, or null. */
const noPast = ({state, known_from: from, begins_at: begin}) => (begin ? `too early; the comparison begins at ${timeText(begin)}` : state === "whole" ? null : from ? `no data before ${dayText(from)}` : "no earlier data");
/** Return the part of a period's cost that is compared: up to the last full hour. */
const comparedCost = ({cost, compared}) => (compared?.since_cut ? minus(cost, compared.since_cut) : cost);
const costs = (parameters) => to("/costs", parameters);
const inWords = ({name}) => name.toLowerCase();

function Figures({session, view, at, attention, shown, reload, hidden, now, forecast, paid, today, month, days, reported, kinds, colours, marks, truncated, insights, lists, bins}) {
  const write = writerOf("cost", month.cost);
  const changed = change(comparedCost(month), month.previous?.cost ?? null, write, 1);
  const name = now.toLocaleString("en", {month: "long", timeZone: "UTC"});
  const whole = sum(["0", ...days.map((row) => row.cost)]);
  const isLittle = changed.percent === "–";
  const {cells} = ofNames(days.map((row) => ({bin: row.period.slice(0, 10), group: nameOf(row[FAMILY]), amount: row.cost})));
  const groups = ranked(cells, true);
  const hide = (names) => go(here({hide: names}));
  const series = {paint: painted(groups, colours), hidden, toggle: (group) => hide(hidden.includes(group) ? hidden.filter((each) => each !== group) : [...hidden, group])};
  return html`
    <${Attention} of=${attention} />
    <dl class="numbers lead">
      <${Tile} term=${`Spend in ${name}`} value=${write(month.cost, month)} exact=${`$${month.cost}`} href=${costs({from: "this-month", by: FAMILY})}
        note=${noPast(month.past) ?? (changed.percent === "new" ? `no spend in ${month.compared.before.text}` : html`<b>${changed.amount || "No change"}${!isLittle && ` (${changed.percent})`}</b>
          ${" "}${month.compared.now.text} against ${month.compared.before.text}, ${write(month.previous.cost, month.previous)}`)}>
        ${month.past.state === "whole" && html`<dd><${Drivers} drivers=${month.drivers} write=${write} href=${(model) => costs({from: "this-month", [FAMILY]: model, by: "team"})}
          all=${costs({from: "this-month", by: FAMILY, parts: "1"})} /></dd>`}<//>
      <${Tile} term=${`Forecast for ${name}`} value=${forecast ? write(forecast.total) : "–"} href=${costs({from: "this-month", by: FAMILY})}
        note=${forecast ? bounds(forecast, write) : "too early: it needs more days"} />
      ${paid && html`<${Tile} term=${`Paid in ${name}`} value=${write(paid.cost)} exact=${`$${paid.cost}, without the usage that seats include`} href=${costs({from: "this-month", cost_type: "paid_cost", by: "charge"})}
        note=${partsOf(paid).map(([amount, part]) => `${write(amount)} ${part}`).join(", ")} />`}
      <${Tile} term="Today so far (UTC)" value=${write(today.cost, today)} exact=${`$${today.cost}`} href=${costs({from: day(now), by: FAMILY, bin: "hourly"})}
        note=${noPast(today.past) ?? `${write(comparedCost(today), today)} until ${today.compared.now.to.slice(11, 16)}, ${write(today.previous.cost, today.previous)} by then yesterday`} />
      <${Tile} term=${`Calls in ${name}`} value=${exactCount(month.calls)} href=${costs({from: "this-month", by: FAMILY, measure: "calls"})}
        note=${`${month.calls ? `${money(per(month.cost, month.calls, 1000))} per 1,000 calls · ` : ""}${percent(month.errors, month.calls).replace(" ", "\u00a0")} failed`} />
    </dl>
    <div class="lists"><${StackedBars} title=${`Cost by model, ${inWords(shown)}`} ...${{bins, cells, colours, hidden, hide}} isOpen=${bins.at(-1) === day(now)} isDaily=${true} marks=${wordsByBin(marks, bins)}
      listed=${lists[FAMILY].map((row) => nameOf(row[FAMILY]))} picker=${html`<${RangePicker} query=${at} isOfDays=${true} isAlone=${true} />`}
      href=${(model) => model !== OTHER && costs({...inAddress(shown), [FAMILY]: model, by: "team"})}
      toBin=${(bin) => go(costs({from: bin, to: bin, by: FAMILY, bin: "hourly"}))}
      toSegment=${(bin, model) => go(costs({from: bin, to: bin, [FAMILY]: model, by: "team"}))}>
      <${Marks} of=${{data: {marks, truncated}, reload}} session=${session} view=${view}>
        <span class="faint">${bins.at(-1) === day(now) && "The last bar is not complete. "}Most expensive: ${UNITS.map((by, place) => html`${place > 0 && ", "}<a key=${by} href=${costs({...inAddress(shown), by})}>${titleOf(null, by)}s</a>`)}</span><//><//>
      ${LISTS.map(([field, title, next]) => html`<${Shares} key=${field} ...${{title, field, next, shown, whole, session}} rows=${lists[field]} series=${field === FAMILY && series}>${field === FAMILY && html`<p class="faint">
        ${Number(minus(whole, reported)) > 0 && html`<a href=${costs({...inAddress(shown), by: "cost_source"})}>${percent(minus(whole, reported), whole)} of the money is estimated from list prices</a>.`}
        ${kinds.unpriced > 0 && html` <a href=${isOpen(session, {isWhole: true}) ? to("/prices") : costs({...inAddress(shown), by: FAMILY, measure: "unpriced"})}>
          ${counted(kinds.unpriced, "call has", "calls have")} no price</a>.`}
        ${kinds.without_usage > 0 && html` <a href=${costs({...inAddress(shown), by: "source", measure: "without_usage"})}>
          ${counted(kinds.without_usage, "call reports", "calls report")} no usage</a>.`}</p>`}<//>`)}
      ${insights && html`<${Insights} rows=${insights.rows} more=${insights.total_count} />`}</div>`;
}

/** Return the parts of what was paid that are not zero. */
const partsOf = ({metered, seat_fee: fees, overage, contracts}) => [[metered, "for calls"], [fees, "seat fees"],
  [overage, "extra usage"], [contracts, "contracts"]].filter(([amount]) => Number(amount));

const Tile = ({term, value, exact, href, note, children}) => html`<div><dt>${term}</dt><dd title=${exact}><a href=${href}>${value}</a></dd><dd class="faint">${note}</dd>${children}</div>`;

/** The largest values of a dimension. `series`: the squares of the chart, if its names are those of the list; otherwise each row has a bar. */
function Shares({title, field, next, shown, rows, whole, series, session, children}) {
  const at = inAddress(shown);
  const all = costs({...at, by: field});
  const shares = rows.map((row) => ({...row, name: nameOf(row[field])}))
    .sort((a, b) => [OTHER, UNKNOWN].indexOf(a.name) - [OTHER, UNKNOWN].indexOf(b.name) || Number(b.cost) - Number(a.cost));
  const unknown = shares.find(({name}) => name === UNKNOWN);
  const square = (name) => series && html`<${Switch} title=${name} paint=${series.paint.get(name) ?? "s0"} isHidden=${series.hidden.includes(name)}
    toggle=${series.paint.has(name) && (() => series.toggle(name))} />`;
  const bar = ({name, cost}) => !series && name !== UNKNOWN && html`<svg aria-hidden="true" width="72%" height="24"><rect width=${`${barWidth(cost, whole)}%`} height="24" rx="4" /></svg>`;
  return html`<section><h2><a href=${all}>${title}</a> <span class="faint">${inWords(shown)}</span></h2><ol class=${series ? "shares" : "shares barred"}>${shares.map((each) => html`
    <li key=${each.name} class=${series && series.hidden.includes(each.name) ? "hidden" : undefined}>${bar(each)}<span>${square(each.name)}
      <a class="name" href=${each.name === OTHER ? all : costs({...at, [field]: each.name, by: next})} title=${each.name}>${each.name}</a></span>
      <span class="number" title=${`$${each.cost}`}>${writerOf("cost", whole)(each.cost, each)}</span></li>`)}</ol>
    ${Number(unknown?.cost) > 0 && !series && html`<p class="faint">${percent(unknown.cost, whole)} has no ${titleOf(null, field)}.${" "}
      ${isOpen(session, {isWhole: true}) && html`<a href=${to(setUp(field)[1])}>${setUp(field)[0]}</a>`}</p>`}${children}</section>`;
}

const barWidth = (part, whole) => (Number(whole) > 0 ? Math.max(0, Math.min(100, (100 * Number(part)) / Number(whole))) : 0);

function Insights({rows, more}) {
  return html`<section><h2><a href=${all()}>Open insights</a></h2>
    ${rows.length === 0 && html`<p class="faint">No open insights. Tollhouse checks every ten minutes for waste, missing data and unusual spend.</p>`}
    <ul class="insights">${rows.map((row) => html`<li key=${row.id}><span class=${`edge ${SEVERITIES[row.severity] ?? ""}`} aria-hidden="true"></span>
      <a href=${to("/insights", {open: row.id})} title=${row.title}>${row.title}</a> ${Number(row.cost_impact) > 0 && html`<span class="number">${money(row.cost_impact)}</span>`}
      <small class="faint">${row.severity}${Number(row.cost_impact) > 0 && row.category === "delivery" && ", money affected"}, seen ${ago(new Date(Number(row.last_updated) * 1000))}</small></li>`)}</ul>
    ${more > rows.length && html`<p class="faint">and <a href=${all()}>${more - rows.length} more</a></p>`}
  </section>`;
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
