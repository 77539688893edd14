/** What is stated of a budget: the fields of a dialog, and what was typed as the API takes it. */
import {asText, labelsIn} from "./labels.mjs";

const PERIODS = ["monthly", "daily", "weekly", "quarterly", "yearly"];
const TOGETHER = "all together";

const numbers = (wanted) => Object.keys(wanted ?? {}).filter((each) => wanted[each] === "Y").join(", ");
const words = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);
const wanted = (text) => Object.fromEntries(words(text).map((each) => [each.replace(/\s*%$/, ""), "Y"]));
const amounts = (row) => Object.fromEntries(Object.values(row.planned_limits ?? {}).flatMap((each) => Object.entries(each).map(([first, {amount}]) => [first, amount])));

/** The fields of a budget, or of a new one; `dimensions` are choices. */
export const budgetFields = (row, views, dimensions) => [
  {name: "name", label: "Name", value: row.name, required: true},
  {name: "view", label: "View", type: "select", options: views.map((each) => each.name), value: views.find((each) => each.id === row.view?.id)?.name},
  {name: "amount", label: "Amount", value: row.default_amount, note: "of each period, such as 1000.00"},
  {name: "granularity", label: "Period", type: "select", options: PERIODS, value: row.granularity ?? PERIODS[0]},
  {name: "planned", label: "Other amounts", type: "area", rows: 3, value: asText(amounts(row)), note: "FIRST-DAY=AMOUNT, one a line"},
  {name: "alerts", label: "Warn at percent spent", value: numbers(row.alerts ?? {80: "Y", 100: "Y"}), note: "with commas"},
  {name: "forecast_alerts", label: "Warn at percent of the forecast", value: numbers(row.forecast_alerts), note: "with commas"},
  {name: "measure", label: "Counts", type: "select", options: ["cost", "tokens", "calls"], value: row.measure ?? "cost"},
  {name: "per", label: "For each", type: "select", options: [TOGETHER, ...dimensions], value: row.per ?? TOGETHER},
  {name: "time_zone", label: "Time zone", value: row.time_zone ?? "UTC"},
  {name: "channels", label: "Channels", value: (row.channels ?? []).join(", "), note: "of the configuration, with commas; empty: those of the view, else all"},
  {name: "until", label: "Silent until", value: row.silence?.until, note: "a day; empty: not silent"},
  {name: "reason", label: "Why it is silent", value: row.silence?.reason},
];

/** What was typed, as the API takes it. */
export function typedBudget({name, view, amount, granularity, planned, alerts, forecast_alerts, measure, per, time_zone, channels, until, reason}, views) {
  const limits = Object.entries(labelsIn(planned)).map(([first, each]) => [first, {amount: each}]);
  return {
    name, granularity, measure, time_zone, view: {id: views.find((each) => each.name === view)?.id ?? ""},
    default_amount: amount.trim() || null, per: per === TOGETHER ? null : per, channels: words(channels),
    planned_limits: limits.length ? {[granularity]: Object.fromEntries(limits)} : {},
    alerts: wanted(alerts), forecast_alerts: wanted(forecast_alerts), silence: until ? {until, reason} : null,
  };
}
