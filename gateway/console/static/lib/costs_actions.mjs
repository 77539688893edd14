/** Actions of the page Costs: a view, and for one row a budget, the filter of a role or a link. Loaded when somebody asks for one. */
import {go, grouped, here} from "./address.mjs";
import {get, send} from "./api.mjs";
import {QuickBudget} from "./budget_fields.mjs";
import {UNKNOWN, nameOf} from "./chart.mjs";
import {day, rangeOf} from "./range.mjs";
import {asLines, typedView, viewFields} from "./view_fields.mjs";

/** Return the form for saving the page as a view. Its filter includes the filter of the current view. `titled`: the dimensions with their titles. */
export const draft = async (at, titled) => ({
  fields: viewFields(await viewOf(at), titled),
  run: async (given) => go(here({...Object.fromEntries(at.filters.map(([name]) => [name, ""])), view: (await send("POST", "/views", typedView({}, given))).view.id})),
});

/** Return the filter of a row as lines, or "" if the current view no longer contains the row. */
export async function filterOf(at, value) {
  const {filter} = await viewOf({...at, filters: [...at.filters.filter(([name]) => name !== at.by[0]), [at.by[0], value]]});
  return Object.values(filter).every((values) => values.length) ? asLines(filter).split("\n") : "";
}

async function viewOf({by, bin, filters, kind, range, span: {view}}) {
  const outer = view ? (await get(`/views/${encodeURIComponent(view)}`)).view.filter : {};
  const filter = {...outer};
  for (const [name, values] of Object.entries(grouped(filters))) {
    const excludes = name.endsWith("!");
    const place = excludes ? `!${name.slice(0, -1)}` : name;
    const [own, held] = [values.flatMap((value) => (value === UNKNOWN ? [null, UNKNOWN] : [value])), outer[place]];
    filter[place] = !held ? own : excludes ? [...new Set([...held, ...own])] : own.filter((value) => held.includes(value));
  }
  return {filter, principal_dimension: by[0], group_by: by, granularity: bin, cost_type: kind, range: rangeOf(range.asked) ?? "this_month"};
}

/** Load the form for a budget, with the names of channels. Without names, the budget uses every channel. */
export async function budget() {
  const {channel_names: channels} = await get("/channel-names").catch(() => ({channel_names: []}));
  return {QuickBudget, names: channels.map((each) => each.name)};
}

/** Return the address of a row with fixed days. For the total, it is the address of the page. */
export function fixed(row, {by, past, range}, {compared}) {
  const own = row.of ? {} : Object.fromEntries(by.map((field) => [field, nameOf(row[field])]));
  const isNamed = compared && !["previous", "same_weekdays"].includes(past) && !past.includes("..");
  const last = ({to: until}) => new Date(Date.parse(`${until.slice(0, 16)}Z`) - 1).toISOString().slice(0, 10); // days of the page's zone
  const against = isNamed ? {against: `${compared.before.from.slice(0, 10)}..${last(compared.before)}`} : {};
  return here({...own, ...against, from: range.from.slice(0, 10), to: range.to ?? day(new Date())});
}
