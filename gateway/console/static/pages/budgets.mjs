/** Budgets: the limit of each view, the amount spent, the forecast, and the thresholds reached. */
import {to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {DEFAULT_CHANNELS, MONEY, budgetFields, exceededNote, typedBudget} from "../lib/budget_fields.mjs";
import {Lines} from "../lib/chart.mjs";
import {FAMILY, NONE, choices, knownDimensions, titleOf} from "../lib/dimensions.mjs";
import {ago, amounts, bounds, count, counted, minus, money, per, shortMoney, sum} from "../lib/format.mjs";
import {html, useState} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Fields, Problem, State, Table, Tabs, isOpen, may} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {day, daysBefore} from "../lib/range.mjs";
import {ChannelProblems} from "../lib/shared_fields.mjs";
import {elsewhere} from "./budgets_elsewhere.mjs";
import {BudgetLine} from "./budgets_line.mjs";

const PATH = "/budgets";
const needs = "modify_views_and_budgets";
const TABS = [["", "Budgets"], ["elsewhere", "Limits elsewhere"]];
const KINDS = {fired: "bad", pending: "wait", corrected: "good", cleared: "good"};
const EXPAND = ["current", "history", "burnup", "forecast"];

const at = (id) => `${PATH}/${encodeURIComponent(id)}`;
const whole = (text) => count(String(text).split(".")[0]);
const inCurrency = (format, currency) => (currency === "USD" ? format : (text, ...more) => ((text ?? null) === null ? format(text) : `${format(text, ...more).replace("$", "")} ${currency}`));
const formatOf = (row) => (row.measure === "cost" ? inCurrency(money, row.currency) : (text) => ((text ?? null) === null ? "unknown" : whole(text)));
const firstDay = (row) => row.burnup && Object.keys(Object.values(row.burnup)[0])[0]; // of the running period, in the budget's time zone
const dash = (value, format) => ((value ?? null) === null ? "–" : format(value));
const seen = (seconds) => (seconds === null ? "–" : ago(new Date(Number(seconds) * 1000)));
const thresholds = (wanted) => Object.keys(wanted).filter((each) => wanted[each] === "Y").map(Number).sort((a, b) => a - b);

function forecastOf({forecast, ...row}) {
  const format = formatOf(row);
  if (!forecast?.total) return html`<span class="faint" title=${forecast?.reason}>not yet</span>`;
  return html`${format(forecast.total)} <span class="faint">${bounds(forecast, format)}</span>`;
}

const STATES = {not_evaluated: ["not evaluated", "bad"], not_evaluated_yet: ["not evaluated yet", "wait"], no_amount: ["no amount", "wait"],
  over: ["over", "bad"], over_threshold: ["over a threshold", "bad"], within: ["within budget", "good"]};
const isMuted = ({silence}) => silence && new Date(silence.until) > new Date();
const states = (row) => [STATES[row.state], ...(isMuted(row) ? [["muted", "wait"]] : [])];

const amount = (title, of) => ({title, kind: "number", value: (row) => dash(of(row), formatOf(row)), exact: of});

const columns = (titles) => [
  {title: "Name", value: (row) => row.name, sort: "name"},
  {title: "Period", value: (row) => row.granularity},
  amount("Spent", (row) => row.current?.actual),
  {title: "Planned", kind: "number", value: (row) => (row.per ? `${dash(row.default_amount, formatOf(row))} per ${titleOf(titles, row.per)}` : dash(row.current?.planned, formatOf(row)))},
  {title: "Used", kind: "number", value: (row) => dash(row.percent, (percent) => `${percent} %`), sort: "percent"},
  {title: "Forecast", kind: "number", value: forecastOf},
  {title: "Thresholds", value: ({alerts, percent}) => thresholds(alerts).map((each) => html`<${State} key=${each} word=${`${each} %`}
    kind=${percent >= each ? "bad" : "plain"} /> `)},
  {title: "State", value: (row) => states(row).map(([word, kind]) => html`<${State} key=${word} word=${word} kind=${kind} /> `)},
];

/** Chart data of the running period: spending to the end of each day, an even share of the plan, and the path to the forecast. */
function burnUp({burnup, current, forecast}) {
  const known = Object.entries(Object.values(burnup)[0]);
  const length = Math.round((new Date(current.end) - new Date(current.start)) / 86400000); // rounded, because a day can have 23 or 25 hours
  const days = Array.from({length}, (_, place) => day(daysBefore(new Date(known[0][0]), -place)));
  const [today, spent] = [known.length - 1, known.at(-1)[1].actual];
  const left = days.length - known.length;
  const cells = [];
  const add = (bin, group, value, rank) => cells.push({bin, group, amount: value, weight: 1000 ** rank}); // so that any number of days in one group weighs less than one day of the next
  days.forEach((bin, place) => {
    if (place <= today) add(bin, "spent", known[place][1].actual, 5);
    if (current.planned !== null) add(bin, "planned, spread evenly", per(current.planned, days.length, place + 1), 4);
  });
  const until = (name, place) => (place ? sum([spent, per(minus(forecast[name], spent), left, place)]) : spent);
  const ahead = forecast.total && left ? days.slice(today).map((bin, place) => ({bin, amount: until("total", place), low: until("low", place), high: until("high", place)})) : [];
  return {bins: days, cells, ahead};
}

function Details({row, titles}) {
  const [format, id] = [formatOf(row), at(row.id)];
  const {data, error, reload} = useQuery(async () => {
    const [alerts, owners] = await Promise.all([get(`${id}/alerts`), row.per ? get(`${id}/owners`) : {owners: []}]);
    return {alerts: alerts.alerts, owners: owners.owners};
  }, [row.id], ["budgets", "ledger"]);
  const {current, forecast} = row;
  return html`<p class="bar"><a href=${to("/costs", {view: row.view.id, from: firstDay(row), by: row.per ?? FAMILY})}>Show costs</a>
    <a href=${to("/views", {view: row.view.id, open: row.view.id})}>Show the view</a></p>
    ${row.problem && html`<p class="wrong">${row.problem}</p>`}
    ${current && html`<${Running} row=${row} format=${format} titles=${titles} />`}
    ${current && row.burnup && html`<${Lines} title="Spent so far" ...${burnUp(row)} colours=${{spent: 1}} isDaily=${true} isOpen=${true} format=${format}
      short=${row.measure === "cost" ? inCurrency(shortMoney, row.currency) : (number) => whole(number)} zone=${row.time_zone} />`}
    ${forecast && !forecast.total && html`<p class="faint">No forecast: ${forecast.reason}</p>`}
    <${Problem} error=${error} retry=${reload} />
    ${data && html`<h3>Thresholds of this period</h3><${Thresholds} row=${row} alerts=${data.alerts} />
      ${data.owners.length > 0 && html`<h3>By ${titleOf(titles, row.per)}</h3><${Table} caption="Owners" rows=${data.owners} identity=${(each) => String(each.owner)}
        columns=${ownerColumns(format)} />`}
      ${data.alerts.length > 0 && html`<h3>Alerts</h3><${Table} caption="Alerts" rows=${data.alerts} columns=${alertColumns(format)}
        identity=${(each) => [each.period, each.owner, each.kind, each.percent].join(" ")} />`}`}
    ${row.history && html`<h3>Periods</h3><${Table} caption="Periods" rows=${periods(row)} identity=${(each) => `${each.name} ${each.day}`}
      columns=${periodColumns(format)} />`}
    <h3>Settings</h3><${Fields} of=${settings(row, titles)} />`;
}

/** Every field that the panel shows in no other place, some of them under another name. */
function settings({name, view, granularity, alerts, forecast_alerts, problem, percent, current, forecast, history, burnup, created, last_updated, version, per, per_label,
  cost_type, default_amount, planned_limits, channels, ...others}, titles) {
  return {money: MONEY[cost_type], for_each: titleOf(titles, per), amount: default_amount, different_amounts: planned({planned_limits}), notify: channels.length ? channels : DEFAULT_CHANNELS, ...others};
}

function Running({row, format, titles}) {
  const {current, forecast, percent} = row;
  return html`<dl class="numbers">
    <div><dt>Spent since ${firstDay(row)}</dt><dd title=${current.actual}>${format(current.actual)}</dd>
      <dd class="faint">${counted(current.calls, "call")}${current.unpriced_calls > 0 && `, ${whole(current.unpriced_calls)} without a price`}</dd>
      ${Object.keys(current.unconverted).length > 0 && html`<dd class="faint">not included, because no exchange rate is known: ${amounts(current.unconverted)}</dd>`}</div>
    <div><dt>Planned</dt><dd title=${current.planned}>${dash(current.planned ?? row.default_amount, format)}</dd>
      <dd class="faint">${current.owners ? `per ${titleOf(titles, row.per)}; ${current.owners.past} of ${current.owners.count} exceeded it` : dash(percent, (each) => `${each} % spent`)}</dd></div>
    ${forecast?.total && html`<div><dt>Forecast</dt><dd title=${forecast.total}>${format(forecast.total)}</dd>
      <dd class="faint">${bounds(forecast, format)}</dd></div>`}</dl>`;
}

const planned = ({planned_limits}) => Object.values(planned_limits).flatMap((each) => Object.entries(each).map(([first, {amount: text}]) => `${first}: ${text}`));
/** List the periods of the budget's granularity, newest first. The oldest is the one in which it was created. */
function periods({history, created, granularity}) {
  const first = day(new Date(Number(created) * 1000));
  const found = history[granularity];
  const days = Object.keys(found).sort();
  return days.filter((_, place) => place === days.length - 1 || days[place + 1] > first).reverse().map((begins) => ({name: granularity, day: begins, ...found[begins]}));
}

const periodColumns = (format) => [
  {title: "Begins", value: (each) => each.day},
  {title: "Period", value: (each) => each.name},
  {title: "Spent", kind: "number", value: (each) => dash(each.actual, format), exact: (each) => each.actual},
  {title: "Planned", kind: "number", value: (each) => dash(each.planned, format)},
];

const ownerColumns = (format) => [
  {title: "Name", value: (each) => each.owner ?? "unknown"},
  {title: "Spent", kind: "number", value: (each) => format(each.actual), exact: (each) => each.actual},
  {title: "Planned", kind: "number", value: (each) => dash(each.planned, format)},
  {title: "Used", kind: "number", value: (each) => dash(each.percent, (percent) => `${percent} %`)},
  {title: "Forecast", kind: "number", value: (each) => dash(each.forecast, format)},
];

const alertColumns = (format) => [
  {title: "Period", value: (each) => each.period},
  {title: "Threshold", value: (each) => `${each.percent} %, ${each.kind}`},
  {title: "State", value: (each) => html`<${State} word=${each.state} kind=${KINDS[each.state]} />`},
  {title: "Amount", kind: "number", value: (each) => `${format(each.value)} of ${format(each.planned)}`},
  {title: "Owner", value: (each) => each.owner ?? "all"},
  {title: "Fired", value: (each) => seen(each.fired_at)},
  {title: "Notified", value: (each) => (each.told ? "yes" : "no")},
];

/** Each threshold with its state in the running period. For a budget with owners, the number of owners in each state. */
function Thresholds({row, alerts}) {
  const rows = [["actual", row.alerts], ["forecast", row.forecast_alerts]].flatMap(([kind, wanted]) => thresholds(wanted).map((percent) => ({kind, percent})));
  const first = firstDay(row);
  const states = ({kind, percent}) => {
    const found = alerts.filter((each) => each.period >= first && each.kind === kind && each.percent === percent);
    const words = [...new Set(found.map((each) => each.state))];
    if (!words.length) return html`<${State} word="not reached" kind="plain" />`;
    return words.map((word) => html`<${State} key=${word} word=${row.per ? `${word}: ${found.filter((each) => each.state === word).length}` : word} kind=${KINDS[word]} /> `);
  };
  if (!rows.length) return html`<p class="faint">This budget has no thresholds, so it notifies nobody.</p>`;
  return html`<${Table} caption="Thresholds" rows=${rows} identity=${(each) => `${each.kind} ${each.percent}`} columns=${[
    {title: "Threshold", value: (each) => `${each.percent} %`}, {title: "Compared with", value: (each) => (each.kind === "actual" ? "amount spent" : "forecast")},
    {title: "State", value: states}]} />`;
}


const list = ({views, dimensions, channels}) => ({
  path: PATH, root: "budgets", at: PATH, file: (row) => ["budgets", row.id], caption: "budgets", what: ["budgets", "ledger"], inView: true, ask: {expand: ["current", "forecast"]}, columns: columns(dimensions.titles),
  identity: (row) => row.id, heading: (row) => row.name, one: (answer) => answer.budget, fields: ({burnup, history, ...row}) => row,
  show: (id) => `${at(id)}?${EXPAND.map((each) => `expand=${each}`).join("&")}`,
  Details: ({row}) => html`<${Details} row=${row} titles=${dimensions.titles} />`,
  create: {title: "Create a budget", needs, look: "second", fields: () => budgetFields({}, views, choices(dimensions), channels),
    run: (_, given) => send("POST", PATH, typedBudget(given, views)).then(exceededNote)},
  actions: [
    {title: "Edit", needs, fields: (row) => budgetFields(row, views, choices(dimensions), channels), run: (row, given) => send("PATCH", at(row.id), {...typedBudget(given, views), version: row.version}).then(exceededNote)},
    {title: "Delete", needs, danger: true, exact: (row) => row.name, text: () => "The alerts of the budget are deleted as well. Calls are not deleted.",
      run: (row) => send("DELETE", `${at(row.id)}?confirm=${encodeURIComponent(row.name)}`).then(() => null)},
  ],
  empty: html`<h2>No budgets yet</h2><p>A budget notifies you before and when the calls of a <a href=${to("/views")}>view</a> reach its limit, but it never
    blocks a call. The form above creates a budget and its view.</p>`,
});

function Budgets(given) {
  const known = useQuery(async () => {
    const [{views}, dimensions, {channel_names: channels}] = await Promise.all([get("/views", {limit: 1000}), knownDimensions(), get("/channel-names")]);
    return {views, dimensions, channels};
  }, [], ["views", "notifications"]);
  const [made, setMade] = useState(0);
  const {data} = known;
  const names = (data?.channels ?? []).map(({name}) => name);
  return html`<${Problem} error=${known.error} retry=${known.reload} />
    ${data && html`<${ChannelProblems} channels=${data.channels} session=${given.session} />`}
    ${data && may(given.session, needs) && html`<${BudgetLine} ...${data} channels=${names} made=${() => setMade(made + 1)} />`}
    <${ListPage} key=${made} list=${{...list({...(data ?? {views: [], dimensions: NONE}), channels: names}), isLoading: !data}} ...${given} />`;
}

/** The budgets, and for people who may see all calls the limits of others. */
export function Page(given) {
  if (!isOpen(given.session, {isWhole: true})) return html`<${Budgets} ...${given} />`;
  const isElsewhere = given.query.get("tab") === "elsewhere";
  return html`<${Tabs} path=${PATH} tabs=${TABS} query=${given.query} />
    ${isElsewhere ? html`<${ListPage} list=${elsewhere(PATH)} ...${given} />` : html`<${Budgets} ...${given} />`}`;
}
