/** Questions on the shown costs: why they changed since an earlier period, and what the calls would have cost with another model. */
import {addressOf, get} from "./api.mjs";
import {nameOf} from "./chart.mjs";
import {titleOf} from "./dimensions.mjs";
import {counted, dayText, exactCount, money, percent} from "./format.mjs";
import {html} from "./html.mjs";
import {measureOf, writerOf} from "./measures.mjs";
import {Uncompared} from "./past.mjs";
import {Loading, Problem, Table, amount} from "./parts.mjs";
import {useQuery} from "./query.mjs";

/** The section of a question, drawn by `draw` from the answer of `path`. `label` names it, and `json` its link. */
function Question({label, title, path, asked, json, draw}) {
  const found = useQuery(() => get(path, asked), [path, JSON.stringify(asked)], ["ledger"]);
  return html`<section aria-label=${label}><h2>${title}</h2>
    <${Problem} error=${found.error} at=${found.at} retry=${found.reload} />
    <${Loading} of=${found} blocks=${["tiles", "table"]}>${found.data && html`${draw(found.data)}
      <p class="bar"><span class="faint">Download</span> <a href=${addressOf(path, asked)}>${json}</a></p>`}<//></section>`;
}

/** The columns with the names of a group. The last row has the total. */
const groups = (by, names) => by.map((field, place) => (
  {title: titleOf(names, field), kind: "text", value: (row) => (row.isTotal ? !place && "Total" : nameOf(row[field]))}));

const identityBy = (by) => (row) => JSON.stringify(by.map((field) => row[field]));

// -- why costs changed ----------------------------------------------------------------------------------------

const PARTS = {
  more_calls: ["More calls", "at the earlier cost per call"],
  larger_calls: ["Larger calls", "more tokens per call, at the earlier cost per token"],
  other_kinds: ["Other models or token types", "at the earlier price of each"],
  large_inputs: ["Large inputs", "tokens in inputs with a higher price"],
  other_tiers: ["Service tier", "tokens in a tier with another price, such as batch"],
  other_regions: ["Region", "tokens in a region with another price"],
  reported_costs: ["Reported costs", "tokens with a cost that their source reported"],
  prices: ["Prices", "a list price or an own price changed"],
  reported_rates: ["Reported rates", "sources report another cost for the same tokens"],
  unit_cost: ["Cost per token", "a change that no other part explains"],
  new: ["New", "groups without calls in the earlier period"],
  gone: ["Ended", "groups without calls now"],
};
const TOP = 20;

const signed = (write) => (text) => `${Number(text) > 0 ? "+" : ""}${write(text)}`;
/** The explanation of a change. `parameters`: range, filters and `by` of the page. `href(row)`: the link of a group; (other) has no link. */
export function WhatChanged({parameters, against, href}) {
  return html`<${Question} label="What changed" title="What changed" path="/comparison" asked=${{...parameters, against, top: TOP}} json="JSON of the change"
    draw=${(data) => html`<${Change} ...${data} href=${href} />`} />`;
}

function Change({comparison, rows, total, href}) {
  if (total.change === null) return html`<p>${comparison.sentence}</p>`;
  const plain = writerOf("cost", total.cost);
  const change = signed(plain);
  const parts = Object.entries(PARTS).filter(([name]) => rows.some((row) => Number(row[name])));
  const part = (title, of, write = change) => ({title, kind: "number", value: (row) => write(of(row), row), exact: (row) => `$${of(row)}`});
  const columns = [
    ...groups(comparison.by, comparison.names),
    part("Cost", (row) => row.cost, plain),
    part("Before", ({against}) => against.cost, (text, {against}) => plain(text, against)),
    part("Change", (row) => row.change),
    ...parts.map(([name, [title]]) => part(title, (row) => row[name])),
  ];
  const unpriced = total.unpriced + total.against.unpriced;
  return html`
    <p><strong>${comparison.sentence}</strong></p>
    <p>${comparison.compared.now.text}: ${plain(total.cost)}; ${comparison.compared.before.text}: ${plain(total.against.cost)}.
      <${Uncompared} compared=${comparison.compared} write=${plain} />
      ${" "}Estimated share: ${percent(total.estimated, total.cost)}, earlier ${percent(total.against.estimated, total.against.cost)}.
      ${unpriced > 0 && html` Of both periods, ${counted(unpriced, "call has", "calls have")} no price and ${unpriced === 1 ? "is" : "are"} missing from the totals.`}
      ${comparison.whole_since && html` Totals before ${dayText(comparison.whole_since)} may lack calls.`}</p>
    <dl class="numbers"><div><dt>Change</dt><dd title=${`$${total.change}`}>${change(total.change)}</dd></div>
      ${parts.map(([part, [title, what]]) => html`<div key=${part}><dt>${title}</dt><dd title=${`$${total[part]}`}>${change(total[part])}</dd>
        <dd class="faint">${what}</dd></div>`)}</dl>
    ${rows.length === 0 ? html`<p>No calls in either period.</p>` : html`<${Table} caption="What drives the change" columns=${columns} rows=${rows}
      foot=${{...total, isTotal: true}} identity=${identityBy(comparison.by)}
      href=${href} />`}`;
}

// -- what another model would have cost ------------------------------------------------------------------------

/** The estimate for another model. `parameters`: range, filters and `by` of the page. `href(row)`: the link of a group; (other) has no link. */
export function WhatIf({model, parameters, names, href}) {
  return html`<${Question} label="As if" title=${`Cost if all of these calls used ${model}`} path="/what-if" asked=${{...parameters, model}} json="JSON"
    draw=${(data) => html`<${Answer} ...${{...data, names, href}} />`} />`;
}

function Answer({what_if: estimate, rows, total, names, href}) {
  const columns = [
    ...groups(estimate.by, names),
    {title: "Calls", kind: "number", value: (row) => exactCount(row.calls)},
    amount("Cost", "cost"), amount(`Cost with ${estimate.model}`, "as_if"), amount("Savings", "saves"),
  ];
  const costsMore = estimate.saves_a_month.startsWith("-");
  return html`
    <p><strong>${money(total.cost)} would have been ${money(total.as_if)}: ${costsMore ? `${money(estimate.saves_a_month.slice(1))} more` : `${money(estimate.saves_a_month)} less`} a month at this rate.</strong></p>
    <p class="faint">Assumes: ${estimate.assumptions.join(" ")} Days are in UTC, ${estimate.from} to ${estimate.to}.
      ${Number(total.unchanged) > 0 && ` ${money(total.unchanged)} has no list price now, so it stays unchanged.`}
      ${Number(estimate.left_out) > 0 && ` Not included, because the groups are small: ${money(estimate.left_out)}.`}</p>
    ${rows.length > 0 && html`<${Table} caption="Cost with another model, by group" columns=${columns} rows=${rows} foot=${{...total, isTotal: true}}
      identity=${identityBy(estimate.by)} href=${href} />`}`;
}

const OF_PLANS = {
  paid_cost: "Calls that seats cover are left out. Fees and extra usage of seats, and amounts of contracts, count by day.",
  metered_cost: "Calls that seats cover are left out.",
  covered_cost: "Only calls that seats cover.",
};

/** What a kind of money counts: for billed costs, how complete the bills are, and the billed cost without matching calls, which people with restricted access do not get. */
export const OfMoney = ({kind, through, days: {closed, provisional, open} = {}, unallocated, counted}) => OF_PLANS[kind] ?? html`${through ? `Bills are complete through ${through}` : "No day has a complete bill"}: ${closed} days closed,
  ${" "}${provisional} provisional, ${open} without a bill.${unallocated !== undefined && html` <span title=${`$${unallocated}`}>${measureOf("cost").format(unallocated)}</span> belong to no counted calls.`}${counted && ` Days without a bill use counted costs: ${measureOf("cost").format(counted)}.`}`;
