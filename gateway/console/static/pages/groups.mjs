/** Costs in groups of enough people, as everybody may see them who may not see names (`privacy.min_group`). */
import {exactCount, money} from "../lib/format.mjs";
import {html} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";

const named = (title, name) => ({title, value: (row) => (name in row ? row[name] ?? "unknown" : "")});

const list = {
  path: "/group-costs", root: "group_costs", at: "/groups", caption: "groups", what: [], titles: {by: "Group by"},
  identity: (row) => row.id, heading: () => "Group",
  columns: [{title: "From", sort: "from", order: "desc", value: (row) => row.from.slice(0, 10)}, {title: "Before", value: (row) => row.to.slice(0, 10)},
    named("Team", "team"), named("Provider", "provider"), named("Model", "model"), named("Source", "source"),
    {title: "Cost", kind: "number", sort: "cost", order: "desc", value: (row) => money(row.cost)},
    {title: "Calls", kind: "number", sort: "calls", order: "desc", value: (row) => exactCount(row.calls)}],
  Before: ({answer}) => answer.people > 0 && html`<p class="faint">Each group has at least ${answer.people} people besides you.</p><p>${money(answer.total.cost)} in these groups.</p>`,
  empty: html`<h2>No groups yet</h2><p>No week has enough people.</p>`,
};

export const Page = (given) => html`<${ListPage} list=${list} ...${given} />`;
