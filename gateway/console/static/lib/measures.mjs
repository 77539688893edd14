/** What Costs can show: the measures of a report, and how each is written. */
import {count, duration, exactCount, money, per, shortMoney} from "./format.mjs";

const exactMoney = (text) => (text === null ? "unknown" : `$${text}`);
/** Sums count calls in ranges of durations, so a percentile is estimated; the last range has no end. */
const estimated = (ms, row) => (ms === null ? (row?.timed ? "> 5 min" : "unknown") : `≈ ${duration(Number(ms))}`);
const amount = (title, more) => ({title, format: money, short: shortMoney, exact: exactMoney, ...more});
const number = (title, more) => ({title, format: count, short: count, exact: exactCount, adds: true, ...more});
const latency = (name, title) => ({[name]: {title, format: estimated, short: duration, needs: [name, "timed"]}});

/** What one of a unit costs: "unit:user" in the address, of a dimension or of a unit-cost stream. */
const UNIT = "unit:";
const unitTitle = (unit) => `Cost per ${unit.replace(/^(tag:|stream:)/, "")}`;
export const unitOf = (name) => (name?.startsWith(UNIT) ? name.slice(UNIT.length) : undefined);
const orDash = (text) => (text === null ? "–" : money(text));
const ofUnit = (unit) => amount(unitTitle(unit), {format: orDash, needs: ["cost_per_unit", "units"], of: (row) => row.cost_per_unit});

/** The measures that dimensions give: [name, title] of what one of each costs. A model, a provider or a state is nothing that one pays for. */
const NO_UNITS = ["model_family", "provider_family", "model", "request_model", "provider", "status", "cost_source", "source", "region"];
export const unitChoices = (dimensions, streams = []) => [...dimensions.filter((name) => !NO_UNITS.includes(name)), ...streams.map((name) => `stream:${name}`)]
  .map((unit) => [UNIT + unit, unitTitle(unit)]);

/** A measure by its name; undefined if there is none. */
export const measureOf = (name) => MEASURES[name] ?? (unitOf(name) ? ofUnit(unitOf(name)) : undefined);

/** By name. `adds`: values of groups make a sum, so they are stacked and have shares. `parts`: what it consists of. */
export const MEASURES = {
  cost: amount("Cost", {adds: true}),
  calls: number("Calls"),
  errors: number("Failed calls"),
  unpriced: number("Calls without a price"),
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
  cost_per_call: amount("Cost of a call", {needs: ["cost", "calls"], of: ({cost, calls}) => (cost && calls ? per(cost, calls) : null)}),
  cost_per_million_tokens: amount("Cost of 1M tokens"),
  ...latency("latency_p50_ms", "Latency (p50)"),
  ...latency("latency_p95_ms", "Latency (p95)"),
  ...latency("latency_p99_ms", "Latency (p99)"),
};

/** The money that costs can be: what was counted, or what providers billed. Of a bill there is money alone, by whole days of UTC. */
export const COUNTED = "real_cost";
export const KINDS = {[COUNTED]: "as counted", billed_cost: "as billed", discounted_cost: "as billed, discounts on usage",
  amortized_cost: "as billed, fees on what they cover", discounted_amortized_cost: "as billed, discounts and fees on usage",
  invoiced_amortized_cost: "the same, of closed days"};
export const BILLED_DIMENSIONS = ["charge", "basis", "corrects", "origin", "connection", "service", "account", "resource", "usage_family", "line_item",
  "cluster", "namespace", "workload"];

/** The value of a measure as text; null where there is none. */
export function valueOf(name, row) {
  const value = row && (measureOf(name).of?.(row) ?? row[name]);
  return value === null || value === undefined ? null : String(value);
}

/** What a report must show for measures. */
export const needed = (names) => [...new Set(names.flatMap((name) => measureOf(name).needs ?? [name]))];
