/** Why costs changed since an earlier period: the parts of the change, and the groups that drive it. */
import {go, here} from "./address.mjs";
import {addressOf, get} from "./api.mjs";
import {nameOf} from "./chart.mjs";
import {titleOf} from "./dimensions.mjs";
import {count, money, percent} from "./format.mjs";
import {html, useState} from "./html.mjs";
import {Loading, Problem, Table} from "./parts.mjs";
import {useQuery} from "./query.mjs";

const PARTS = {
  more_calls: ["More calls", "at the earlier cost per call"],
  larger_calls: ["Larger calls", "more tokens per call, at the earlier cost per token"],
  other_kinds: ["Other models or token types", "at the earlier price of each"],
  prices: ["Prices", "the same token of the same model costs more or less"],
  new: ["New", "groups without calls in the earlier period"],
  gone: ["Ended", "groups without calls now"],
};
const USUAL = "same_weekdays";
const TIMES = {[USUAL]: "the same weekdays", previous: "the previous period", last_month: "last month", last_30d: "the last 30 days"};
const TOP = 20;

const signed = (text) => `${Number(text) > 0 ? "+" : ""}${money(text)}`;
const days = ({from, to: until}) => `${from.slice(0, 16).replace("T", " ")} to ${until.slice(0, 16).replace("T", " ")}`;

/** A picker for the period to compare with, with two date fields for any days. */
export function AgainstPicker({query}) {
  const [isOwn, setOwn] = useState(false);
  const now = query.get("against") ?? "";
  const choose = (against) => go(here({against}));
  const chosen = (event) => (event.target.value === "own" ? setOwn(true) : choose(event.target.value));
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    setOwn(false);
    choose(`${form.get("first")}..${form.get("last")}`);
  };
  const [first, last] = now.split("..");
  return html`<label>Explain the change since <select value=${now && !TIMES[now] ? "own" : now} onChange=${chosen}>
      <option value="">(off)</option>
      ${Object.entries(TIMES).map(([value, name]) => html`<option key=${value} value=${value}>${name}</option>`)}
      <option value="own">${now && !TIMES[now] ? now.replace("..", " to ") : "Choose days ..."}</option></select></label>
    ${(isOwn || (now && !TIMES[now])) && html`<form class="filters" onSubmit=${submit}>
      <input type="date" name="first" aria-label="First day of the earlier period" defaultValue=${last ? first : ""} required />
      <input type="date" name="last" aria-label="Last day of the earlier period" defaultValue=${last ?? ""} required />
      <button type="submit">Compare</button></form>`}`;
}

/** One sentence that explains the difference from the same weekdays earlier. Empty if the comparison fails. */
export function Why({parameters}) {
  const asked = {...parameters, against: USUAL, top: 3};
  const {data, error} = useQuery(() => get("/comparison", asked), [JSON.stringify(asked)], ["ledger"]);
  if (error) return null; // the table below shows its own error
  if (!data) return html`<p class="faint">Comparing with the same weekdays ...</p>`;
  return html`<p><strong>${data.comparison.sentence}</strong> <span class="faint">Compared with ${days(data.comparison.against)}.</span>
    ${" "}<a href=${here({against: USUAL})}>All parts of the change</a></p>`;
}

/** The explanation of a change. `parameters`: range, filters and `by` of the page. `href(row)`: the link of a group; (other) has no link. */
export function WhatChanged({parameters, against, href}) {
  const asked = {...parameters, against, top: TOP};
  const found = useQuery(() => get("/comparison", asked), [JSON.stringify(asked)], ["ledger"]);
  return html`<section aria-label="What changed"><h2>What changed</h2>
    <${Problem} error=${found.error} at=${found.at} retry=${found.reload} />
    <${Loading} of=${found} blocks=${["tiles", "table"]}>${found.data && html`<${Change} ...${found.data} href=${href} />
      <p class="bar"><span class="faint">The same data:</span> <a href=${addressOf("/comparison", asked)}>JSON of the change</a></p>`}<//></section>`;
}

function Change({comparison, rows, total, href}) {
  const amount = (title, of, write = signed) => ({title, kind: "number", value: (row) => write(of(row)), exact: (row) => `$${of(row)}`});
  const columns = [
    ...comparison.by.map((field, place) => ({title: titleOf(comparison.names, field), kind: "text", value: (row) => (row.isTotal ? !place && "Total" : nameOf(row[field]))})),
    amount("Cost", (row) => row.cost, money),
    amount("Before", (row) => row.against.cost, money),
    amount("Change", (row) => row.change),
    ...Object.entries(PARTS).map(([part, [title]]) => amount(title, (row) => row[part])),
  ];
  const unpriced = total.unpriced + total.against.unpriced;
  return html`
    <p><strong>${comparison.sentence}</strong></p>
    <p>${days(comparison)}: ${money(total.cost)}; ${days(comparison.against)}: ${money(total.against.cost)}.
      ${" "}Estimated share: ${percent(total.estimated, total.cost)}, earlier ${percent(total.against.estimated, total.against.cost)}.
      ${unpriced > 0 && html` ${count(unpriced)} calls have no price and are missing from the totals.`}
      ${comparison.whole_since && html` Totals before ${comparison.whole_since.slice(0, 10)} may lack calls.`}</p>
    <dl class="numbers"><div><dt>Change</dt><dd title=${`$${total.change}`}>${signed(total.change)}</dd></div>
      ${Object.entries(PARTS).map(([part, [title, what]]) => html`<div key=${part}><dt>${title}</dt><dd title=${`$${total[part]}`}>${signed(total[part])}</dd>
        <dd class="faint">${what}</dd></div>`)}</dl>
    ${rows.length === 0 ? html`<p>No calls in either period.</p>` : html`<${Table} caption="What drives the change" columns=${columns} rows=${rows}
      foot=${{...total, isTotal: true}} identity=${(row) => JSON.stringify(comparison.by.map((field) => row[field]))}
      href=${href} />`}`;
}
