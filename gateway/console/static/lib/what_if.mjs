/** What the shown calls would have cost with another model. */
import {go, here} from "./address.mjs";
import {addressOf, get} from "./api.mjs";
import {nameOf} from "./chart.mjs";
import {titleOf} from "./dimensions.mjs";
import {exactCount, money} from "./format.mjs";
import {html} from "./html.mjs";
import {Loading, Problem, Table, amount} from "./parts.mjs";
import {useQuery} from "./query.mjs";

/** A field for the other model. It offers `models`, and any other name can be typed. */
export function WhatIfPicker({query, models, load}) {
  const submit = (event) => {
    event.preventDefault();
    go(here({asif: new FormData(event.currentTarget).get("model").trim()}));
  };
  const now = query.get("asif") ?? "";
  return html`<form class="filters" onSubmit=${submit}><label>Cost if all calls used <input key=${now} name="model" list="models" defaultValue=${now}
    placeholder="a model" autocomplete="off" onFocus=${load} /></label>
    <datalist id="models">${models.map((each) => html`<option key=${each} value=${each} />`)}</datalist>
    <button type="submit">Calculate</button>
    ${now && html` <a href=${here({asif: ""})}>(off)</a>`}</form>`;
}

/** The estimate for another model. `parameters`: range, filters and `by` of the page. `href(row)`: the link of a group; (other) has no link. */
export function WhatIf({model, parameters, names, href}) {
  const asked = {...parameters, model};
  const found = useQuery(() => get("/what-if", asked), [JSON.stringify(asked)], ["ledger"]);
  return html`<section aria-label="As if"><h2>Cost if all of these calls used ${model}</h2>
    <${Problem} error=${found.error} at=${found.at} retry=${found.reload} />
    <${Loading} of=${found} blocks=${["tiles", "table"]}>${found.data && html`<${Answer} ...${{...found.data, names, href}} />
      <p class="bar"><span class="faint">The same data:</span> <a href=${addressOf("/what-if", asked)}>JSON</a></p>`}<//></section>`;
}

function Answer({what_if: estimate, rows, total, names, href}) {
  const columns = [
    ...estimate.by.map((field, place) => ({title: titleOf(names, field), kind: "text", value: (row) => (row.isTotal ? !place && "Total" : nameOf(row[field]))})),
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
      identity=${(row) => JSON.stringify(estimate.by.map((field) => row[field]))} href=${href} />`}`;
}
