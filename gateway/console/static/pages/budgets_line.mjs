/** A one-line form for a budget: the value whose calls it limits, the monthly amount, and the channel. The form also creates the view. */
import {get} from "../lib/api.mjs";
import {limitCalls} from "../lib/budget_fields.mjs";
import {OTHER} from "../lib/chart.mjs";
import {titleOf} from "../lib/dimensions.mjs";
import {html, useState} from "../lib/html.mjs";
import {useQuery} from "../lib/query.mjs";

const USUAL = ["team", "user", "api_key", "sender"]; // offered before the organization's own dimensions
const MOST = 200; // number of names offered; any other name can be typed

async function namesOf(field) {
  const {rows} = await get("/report", {by: field, range: "last_90d", show: "cost", top: MOST});
  return [...new Set(rows.map((row) => row[field]).filter((name) => name && name !== OTHER))];
}

/** The form. `dimensions` are {names, titles}; `channels` are names; `made` runs after a budget was created. */
export function BudgetLine({dimensions, channels, made}) {
  const offered = dimensions.names.filter((name) => USUAL.includes(name) || name in dimensions.titles || name.startsWith("tag:"));
  const fields = [...USUAL.filter((name) => offered.includes(name)), ...offered.filter((name) => !USUAL.includes(name))];
  const [field, setField] = useState(USUAL[0]);
  const [state, setState] = useState({}); // {isBusy}, {problem} or {done}
  const {data: names} = useQuery(() => namesOf(field).catch(() => []), [field]); // without names, people type the value
  const submit = async (event) => {
    event.preventDefault();
    const form = event.currentTarget;
    const {value, amount, notify} = Object.fromEntries(new FormData(form));
    setState({isBusy: true});
    try {
      setState({done: await limitCalls({field, title: titleOf(dimensions.titles, field), value: value.trim(), amount, notify})});
      form.reset();
      made();
    } catch (error) {
      setState({problem: error.message});
    }
  };
  return html`<form class="bar sentence" aria-label="Quick budget" onSubmit=${submit}>
    <span>Budget for</span>
    <select aria-label="Kind" value=${field} onChange=${(event) => setField(event.target.value)}>${fields.map((name) => html`<option key=${name}
      value=${name}>${titleOf(dimensions.titles, name)}</option>`)}</select>
    <input name="value" aria-label="Name" list="limited" required autocomplete="off" />
    <datalist id="limited">${names?.map((name) => html`<option key=${name} value=${name} />`)}</datalist>
    <label>$ <input name="amount" aria-label="Dollars a month" inputmode="decimal" size="9" required autocomplete="off" /></label>
    <span>a month, notify</span>
    <select name="notify" aria-label="Channel"><option value="">${channels.length ? "every channel" : "nobody"}</option>${channels.map((name) => html`<option key=${name}>${name}</option>`)}</select>
    <span>at 80 % and 100 %</span>
    <button type="submit" class="main" disabled=${state.isBusy}>Create</button>
    ${state.problem && html`<p role="alert" class="wrong">${state.problem}</p>`}${state.done}</form>`;
}
