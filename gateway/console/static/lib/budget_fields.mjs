/** The form of a budget, and its conversion to the API's fields. */
import {to} from "./address.mjs";
import {get, send} from "./api.mjs";
import {ChannelBoxes, addChannel, asText, labelsIn, typedOthers, withAllFields} from "./shared_fields.mjs";
import {FAMILY} from "./dimensions.mjs";
import {html} from "./html.mjs";
import {COUNTED, KINDS, PLAN_KINDS} from "./measures.mjs";
import {Confirm} from "./parts.mjs";

const PERIODS = ["monthly", "daily", "weekly", "quarterly", "yearly"];
const TOGETHER = "all together";
export const MONEY = {...KINDS, ...PLAN_KINDS};

export const DEFAULT_CHANNELS = "the view's channels, otherwise every channel";

const numbers = (wanted) => Object.keys(wanted ?? {}).filter((each) => wanted[each] === "Y").join(", ");
const words = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);
const wanted = (text) => Object.fromEntries(words(text).map((each) => [each.replace(/\s*%$/, ""), "Y"]));
const amounts = (row) => Object.fromEntries(Object.values(row.planned_limits ?? {}).flatMap((each) => Object.entries(each).map(([first, {amount}]) => [first, amount])));

/** Build the form fields of a budget. `dimensions` are choices; `channels` are names. */
export const budgetFields = (row, views, dimensions, channels) => withAllFields("budget", row, [
  {name: "name", label: "Name", value: row.name, required: true},
  {name: "view", label: "View", type: "select", options: views.map((each) => each.name), value: views.find((each) => each.id === row.view?.id)?.name},
  {name: "amount", of: "default_amount", label: "Limit", value: row.default_amount, note: "per period, in the currency (or in tokens or calls), such as 1000.00"},
  {name: "currency", label: "Currency", value: row.currency ?? "USD", note: "spending is converted at the exchange rate of each day"},
  {name: "granularity", label: "Period", type: "select", options: PERIODS, value: row.granularity ?? PERIODS[0]},
  {name: "planned", of: "planned_limits", label: "Different amounts for certain periods", type: "area", rows: 3, value: asText(amounts(row)), note: "one per line: the first day of the period, =, and the amount, such as 2026-12-01=1500"},
  {name: "alerts", label: "Alert at percent spent", value: numbers(row.alerts ?? {80: "Y", 100: "Y"}), note: "separated by commas"},
  {name: "forecast_alerts", label: "Alert at percent of the forecast", value: numbers(row.forecast_alerts), note: "separated by commas"},
  {name: "measure", label: "Measure", value: row.measure ?? "cost", note: "cost, tokens, calls, or a meter such as web_searches"},
  {name: "cost_type", label: "Money", type: "select", options: Object.entries(MONEY), value: row.cost_type ?? COUNTED, note: "billed costs use UTC days"},
  {name: "per", label: "One budget for each", type: "select", options: [TOGETHER, ...dimensions], value: row.per ?? TOGETHER},
  {name: "time_zone", label: "Time zone", value: row.time_zone ?? "UTC"},
  {name: "channels", label: "Notify", type: ChannelBoxes, value: row.channels ?? [], options: channels, note: `leave all unchecked to use ${DEFAULT_CHANNELS}`},
  {name: "until", of: "silence", label: "Mute alerts until", value: row.silence?.until, note: "a day, such as 2026-12-31"},
  {name: "reason", of: "silence", label: "Why alerts are muted", value: row.silence?.reason},
]);

/** Convert the form values to the API's fields. */
export function typedBudget({name, view, amount, currency, granularity, planned, alerts, forecast_alerts, measure, cost_type, per, time_zone, channels, until, reason, ...others}, views) {
  const limits = Object.entries(labelsIn(planned)).map(([first, each]) => [first, {amount: each}]);
  return {
    ...typedOthers("budget", others), name, granularity, measure, cost_type, time_zone, currency: currency.trim().toUpperCase(), view: {id: views.find((each) => each.name === view)?.id ?? ""},
    default_amount: amount.trim() || null, per: per === TOGETHER ? null : per, channels,
    planned_limits: limits.length ? {[granularity]: Object.fromEntries(limits)} : {},
    alerts: wanted(alerts), forecast_alerts: wanted(forecast_alerts), silence: until ? {until, reason} : null,
  };
}

/** Return a note about thresholds that are already exceeded when a budget is saved, or null. */
export function exceededNote({already_past: past, budget}) {
  if (!past?.length) return null;
  const next = Object.keys(budget.alerts ?? {}).map(Number).filter((each) => !past.includes(each)).sort((a, b) => a - b)[0];
  return html`<p role="status">Saved. Spending is already over ${Math.max(...past)} %${next ? `, so the next alert is at ${next} %` : ", so no alert is sent"}.</p>`;
}

/** Create a monthly budget for the calls with one value, and a view for it unless one exists. Returns an element to show. */
export async function limitCalls({field, title, value, amount, notify}) {
  const what = `${title} ${value}`;
  const filter = {[field]: [value]};
  const {views} = await get("/views", {limit: 1000});
  const isSame = (each) => JSON.stringify(each.filter) === JSON.stringify(filter);
  const view = views.find(isSame) ?? (await send("POST", "/views", {name: free(what, views), filter, principal_dimension: field === FAMILY ? "team" : FAMILY})).view;
  const {budgets} = await get("/budgets", {limit: 1000});
  const answer = await send("POST", "/budgets", {name: free(what, budgets), view: {id: view.id}, default_amount: amount, alerts: {80: "Y", 100: "Y"},
    channels: notify ? [notify] : []});
  const {channel_names: channels} = await get("/channel-names");
  return exceededNote(answer) ?? html`<p role="status">Created <a href=${to("/budgets", {open: answer.budget.id})}>${answer.budget.name}</a>. It alerts at 80 % and 100 %${
    channels.length ? "." : ", but nobody will be notified: there is no channel."}</p>`;
}

/** A dialog that asks for one amount and creates a budget for the calls that match one filter. */
export function QuickBudget({field, title, value, names, session, close}) {
  const run = (given) => limitCalls({field, title, value, ...given});
  return html`<${Confirm} title=${`Budget for ${title} ${value}`} close=${close} run=${run} fields=${[
    {name: "amount", label: "Limit per month in dollars", required: true},
    {name: "notify", label: "Notify at 80 % and 100 %", type: "select", value: "", options: [["", names.length ? "every channel" : "nobody: there is no channel"], ...names],
      note: !names.length && addChannel(session)}]} />`;
}

/** Return the name. If one of the items in `taken` has the name, add a number. */
function free(name, taken) {
  const names = new Set(taken.map((each) => each.name));
  for (let number = 1; ; number++) {
    const found = number > 1 ? `${name} (${number})` : name;
    if (!names.has(found)) return found;
  }
}
