/** What is stated of a view: the fields of a dialog, and what was typed as the API takes it. */
import {titleOf} from "./dimensions.mjs";
import {COUNTED, KINDS} from "./measures.mjs";
import {day} from "./range.mjs";

const RANGES = {mtd: "mtd", last_month: "last-month", last_7d: "now-7d", last_30d: "now-30d", last_90d: "now-90d",
  yesterday: "yesterday", last_week: "last-week", this_quarter: "this-quarter", last_quarter: "last-quarter"};
const YEAR = "ytd";
const PERIODS = ["total", "hourly", "daily", "weekly", "monthly", "quarterly", "yearly"];
const GROWTH = {Automatic: "twice the usual", Percent: "a percentage", off: "none"};

/** A view's filter, written as the command line takes it: NAME=VALUE or NAME!=VALUE a line; without a value: unknown. With `titles` it is for people to read. */
export const asLines = (filter, titles) => Object.entries(filter).flatMap(([name, values]) => values.map((value) => {
  const excludes = name.startsWith("!");
  const own = excludes ? name.slice(1) : name;
  return `${titles ? titleOf(titles, own) : own}${excludes ? "!" : ""}=${value ?? ""}`;
})).join("\n");

/** The filter of such a text; an error names the line that is none. */
export function filterIn(text) {
  const found = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const [, name, not, value] = line.match(/^(.+?)(!?)=(.*)$/) ?? [];
    if (!name) throw new Error(`${line} is neither NAME=VALUE nor NAME!=VALUE.`);
    (found[not + name.trim()] ??= []).push(value.trim() || null);
  }
  return found;
}

/** The span of a view as an address of Costs has it. */
export const spanOf = (range) => (range === YEAR ? `${day(new Date()).slice(0, 4)}-01-01` : RANGES[range]);

/** The range of a view that is the span of an address; the month's where there is none. */
export const rangeOf = (from) => Object.keys(RANGES).find((each) => RANGES[each] === from) ?? "mtd";

const titled = (each) => each[0] !== each[1];
const words = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);

/** The kinds of money of a view, its own too where Costs does not show it. */
const moneyOptions = (own) => [...Object.entries(KINDS), ...(!own || KINDS[own] ? [] : [[own, own]])];

/** The fields of a view, or of what is known of a new one; `dimensions` are choices. */
export const viewFields = (row, dimensions) => [
  {name: "name", label: "Name", value: row.name, required: true},
  {name: "filter", label: "Filter", type: "area", rows: 4, value: asLines(row.filter ?? {}),
    note: "team=search or team!=search, one a line; team= (empty): calls without a team; no line: everything"},
  {name: "principal_dimension", label: "Mainly about", type: "select", value: row.principal_dimension, options: dimensions},
  {name: "group_by", label: "Groups", value: (row.group_by ?? []).join(", "), note: `dimensions of its report, with commas${dimensions.some(titled) ? `: ${dimensions.filter(titled).map((each) => each.join(" is ")).join(", ")}` : ""}`},
  {name: "range", label: "Span", type: "select", value: row.range ?? "mtd", options: [...Object.keys(RANGES), YEAR]},
  {name: "granularity", label: "Periods", type: "select", value: row.granularity ?? "total", options: PERIODS},
  {name: "cost_type", label: "Money", type: "select", value: row.cost_type ?? COUNTED, options: moneyOptions(row.cost_type), note: "of its reports; a budget says its own"},
  {name: "growth", label: "Days that stand out", type: "select", options: Object.values(GROWTH),
    value: GROWTH[row.anomalies?.enabled === false ? "off" : row.anomalies?.threshold_type ?? "Automatic"]},
  {name: "percent", label: "Percentage", type: "number", value: row.anomalies?.threshold_value, note: "more than the day before"},
  {name: "notify", label: "Channels", value: (row.connections?.notify ?? []).join(", "), note: "of the configuration, with commas"},
];

/** What was typed, as the API takes it; `row` is what it changes. */
export function typedView(row, {name, filter, principal_dimension, group_by, range, granularity, cost_type, growth, percent, notify}) {
  const type = Object.keys(GROWTH).find((each) => GROWTH[each] === growth);
  return {
    name, principal_dimension, range, granularity, cost_type, filter: filterIn(filter), group_by: words(group_by),
    anomalies: type === "off" ? {enabled: false} : {threshold_type: type, threshold_value: type === "Percent" && percent ? Number(percent) : null},
    connections: {...row.connections, notify: words(notify)},
  };
}
