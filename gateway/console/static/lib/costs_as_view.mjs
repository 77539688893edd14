/** The page Costs as a view, and one of its rows as the filter of a role. Loaded when somebody asks for it. */
import {grouped} from "./address.mjs";
import {get} from "./api.mjs";
import {UNKNOWN} from "./chart.mjs";
import {asLines, rangeOf, typedView, viewFields} from "./view_fields.mjs";

/** Load the form for saving the page as a view. Its filter includes the filter of the current view. */
export const draft = async (at) => ({of: await viewOf(at), typedView, viewFields});

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
  return {filter, principal_dimension: by[0], group_by: by, granularity: bin, cost_type: kind, range: rangeOf(range.asked)};
}
