/** The form of a view, and its conversion to the API's fields. */
import {titleOf} from "./dimensions.mjs";
import {COUNTED, KINDS, PLAN_KINDS} from "./measures.mjs";
import {RANGES, rangeName} from "./range.mjs";

const PERIODS = ["total", "hourly", "daily", "weekly", "monthly", "quarterly", "yearly"];
const GROWTH = {Automatic: "twice the usual cost", Percent: "a percentage", off: "off"};

/**
 * Write a filter as on the command line: one NAME=VALUE or NAME!=VALUE per line. No value means "unknown".
 * With `titles`, dimensions get the names that people read.
 */
export const asLines = (filter, titles) => Object.entries(filter).flatMap(([name, values]) => values.map((value) => {
  const excludes = name.startsWith("!");
  const own = excludes ? name.slice(1) : name;
  return `${titles ? titleOf(titles, own) : own}${excludes ? "!" : ""}=${value ?? ""}`;
})).join("\n");

/** Parse lines of NAME=VALUE or NAME!=VALUE into a filter. Throws an error that names the first wrong line. */
export function filterIn(text) {
  const found = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const [, name, not, value] = line.match(/^(.+?)(!?)=(.*)$/) ?? [];
    if (!name) throw new Error(`"${line}" is not a filter. Write NAME=VALUE or NAME!=VALUE.`);
    (found[not + name.trim()] ??= []).push(value.trim() || null);
  }
  return found;
}

const titled = (each) => each[0] !== each[1];
const words = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);

/** List the kinds of cost, and the view's own kind even if the Costs page does not offer it. */
const moneyOptions = (own) => [...Object.entries(KINDS), ...(!own || KINDS[own] ? [] : [[own, PLAN_KINDS[own] ?? own]])];

/** Build the form fields of a view. `row` is the view, or the known fields of a new view. */
export const viewFields = (row, dimensions) => [
  {name: "name", label: "Name", value: row.name, required: true},
  {name: "filter", label: "Filter", type: "area", rows: 4, value: asLines(row.filter ?? {}),
    note: "one per line: team=search, team!=search, or team= for calls without a team. Leave empty for all calls."},
  {name: "principal_dimension", label: "Main dimension", type: "select", value: row.principal_dimension, options: dimensions},
  {name: "group_by", label: "Group by", value: (row.group_by ?? []).join(", "), note: `dimensions of its report, separated by commas${dimensions.some(titled) ? `: ${dimensions.filter(titled).map(([name, title]) => `${name} (${title})`).join(", ")}` : ""}`},
  {name: "range", label: "Time range", type: "select", value: row.range ?? "this_month", options: [...new Set([...RANGES, row.range ?? "this_month"])].map((each) => [each, rangeName(each)])},
  {name: "granularity", label: "Periods", type: "select", value: row.granularity ?? "total", options: PERIODS},
  {name: "cost_type", label: "Money", type: "select", value: row.cost_type ?? COUNTED, options: moneyOptions(row.cost_type), note: "kind of cost in its reports; each budget has its own setting"},
  {name: "growth", label: "Alert on unusual days", type: "select", options: Object.values(GROWTH),
    value: GROWTH[row.anomalies?.enabled === false ? "off" : row.anomalies?.threshold_type ?? "Automatic"]},
  {name: "percent", label: "Percentage", type: "number", value: row.anomalies?.threshold_value, note: "increase over the day before, in percent"},
  {name: "notify", label: "Channels", value: (row.connections?.notify ?? []).join(", "), note: "separated by commas"},
];

/** Convert the form values to the API's fields. `row` is the view that they change. */
export function typedView(row, {name, filter, principal_dimension, group_by, range, granularity, cost_type, growth, percent, notify}) {
  const type = Object.keys(GROWTH).find((each) => GROWTH[each] === growth);
  return {
    name, principal_dimension, range, granularity, cost_type, filter: filterIn(filter), group_by: words(group_by),
    anomalies: type === "off" ? {enabled: false} : {threshold_type: type, threshold_value: type === "Percent" && percent ? Number(percent) : null},
    connections: {...row.connections, notify: words(notify)},
  };
}
