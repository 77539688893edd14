/** The measures that the Costs page can show, and how to write them. */
import {count, duration, exactCount, fixed, money, per, placesOf, shortMoney} from "./format.mjs";

const exactMoney = (text) => (text === null ? "unknown" : `$${text}`);
/** Percentiles are estimates, because totals store durations in ranges. The last range has no end. */
const estimated = (ms, row) => (ms === null ? (row?.timed ? "> 5 min" : "unknown") : `≈ ${duration(Number(ms))}`);
const amount = (title, more) => ({title, format: money, short: shortMoney, exact: exactMoney, ...more});
const number = (title, more) => ({title, format: count, short: count, exact: exactCount, adds: true, ...more});
const latency = (name, title) => ({[name]: {title, format: estimated, short: duration, needs: [name, "timed"]}});

/** Cost per unit, "unit:user" in the address. The unit is a dimension or a unit-cost stream. */
const UNIT = "unit:";
const unitTitle = (unit) => `Cost per ${unit.replace(/^(tag:|stream:)/, "")}`;
export const unitOf = (name) => (name?.startsWith(UNIT) ? name.slice(UNIT.length) : undefined);
const orDash = (text) => (text === null ? "–" : money(text));
const ofUnit = (unit) => amount(unitTitle(unit), {format: orDash, needs: ["cost_per_unit", "units"], of: (row) => row.cost_per_unit});

/** Return the cost-per-unit measures as [name, label]. A cost per model, provider or status would have no meaning, so these dimensions are left out. */
const NO_UNITS = ["model_family", "provider_family", "model", "request_model", "provider", "status", "cost_source", "source", "region"];
export const unitChoices = (dimensions, streams = []) => [...dimensions.filter((name) => !NO_UNITS.includes(name)), ...streams.map((name) => `stream:${name}`)]
  .map((unit) => [UNIT + unit, unitTitle(unit)]);

/** Return the measure of this name, or undefined. */
export const measureOf = (name) => MEASURES[name] ?? (unitOf(name) ? ofUnit(unitOf(name)) : undefined);

/** Measures by name. `adds`: groups can be added, so charts stack them and tables show shares. `parts`: the parts of the value. */
export const MEASURES = {
  cost: amount("Cost", {adds: true}),
  calls: number("Calls"),
  errors: number("Failed calls"),
  priced: number("Calls with a known cost"),
  free: number("Free calls"),
  unpriced: number("Calls without a price"),
  without_usage: number("Calls without usage"),
  tokens: number("Tokens", {
    needs: ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"],
    of: (row) => row.input_tokens + row.output_tokens,
    parts: {
      "input, not cached": (row) => Math.max(0, row.input_tokens - row.cache_read_tokens - row.cache_write_tokens),
      "read from cache": (row) => row.cache_read_tokens,
      "written to cache": (row) => row.cache_write_tokens,
      output: (row) => row.output_tokens,
    },
  }),
  input_tokens: number("Input tokens"),
  cache_read_tokens: number("Cached tokens"),
  cache_write_tokens: number("Tokens written to cache"),
  output_tokens: number("Output tokens"),
  reasoning_tokens: number("Reasoning tokens"),
  saved_by_caching: amount("Saved by caching", {format: orDash, needs: ["saved_by_caching"]}),
  cost_per_call: amount("Cost per call", {needs: ["cost", "calls"], of: ({cost, calls}) => (cost && calls ? per(cost, calls) : null)}),
  cost_per_million_tokens: amount("Cost per 1M tokens"),
  ...latency("latency_p50_ms", "Latency (p50)"),
  ...latency("latency_p95_ms", "Latency (p95)"),
  ...latency("latency_p99_ms", "Latency (p99)"),
};

/** The kinds of cost: counted, or billed by providers. Billed costs have no other measures, and only whole UTC days. */
export const COUNTED = "real_cost";
export const KINDS = {[COUNTED]: "counted", billed_cost: "billed", discounted_cost: "billed, discounts spread over usage",
  amortized_cost: "billed, fees spread over the usage they cover", discounted_amortized_cost: "billed, discounts and fees spread over usage",
  invoiced_amortized_cost: "billed, discounts and fees spread, closed days only"};
/** The kinds of counted cost that depend on plans of assistants. */
export const PLAN_KINDS = {paid_cost: "paid, with seat fees", metered_cost: "counted, pay-as-you-go", covered_cost: "counted, covered by seats"};
export const PAID_DIMENSIONS = ["charge", "plan"];
export const BILLED_DIMENSIONS = ["charge", "basis", "corrects", "origin", "connection", "service", "account", "resource", "usage_family", "line_item",
  "cluster", "namespace", "workload"];

/** Return the function that writes a measure of a row with one number of decimals: two, four per call, and four if the total is below a dollar. */
export function writerOf(name, total) {
  const {short, format} = measureOf(name);
  if (short !== shortMoney) return format;
  const places = /^(cost_per_call|unit:)/.test(name) ? 4 : placesOf([total]);
  return (text, row) => (row?.unpriced > 0 && !Number(text) && name.startsWith("cost") ? "no price" : (text ?? null) === null ? format(text, row) : fixed(text, places));
}

/** Return the value of a measure as text, or null. */
export function valueOf(name, row) {
  const value = row && (measureOf(name).of?.(row) ?? row[name]);
  return value?.toString() ?? null;
}

/** Return the report columns that these measures need. */
export const needed = (names) => [...new Set(names.flatMap((name) => measureOf(name).needs ?? [name]))];
