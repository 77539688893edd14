/** A person: what the person has, and the end of it when the person leaves. */
import {go, to} from "../lib/address.mjs";
import {send} from "../lib/api.mjs";
import {html, useState} from "../lib/html.mjs";
import {Confirm, Loading, Problem, State, Table} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";

const PATH = "/people";
const KINDS = {seats: "Seat", devices: "Device", keys: "Key", roles: "Role", account: "Account"};
const STATES = {done: "good", failed: "bad", not_allowed: "bad"};
const leave = async (name, choices) => (await send("POST", `${PATH}/${encodeURIComponent(name)}/leave`, choices)).leaving;

const COLUMNS = [
  {title: "Kind", value: (row) => KINDS[row.step]},
  {title: "Name", value: (row) => row.name},
  {title: "When the person leaves", kind: "words", value: (row) => row.what},
];
const RECEIPT = [...COLUMNS.slice(0, 2), {title: "State", value: (row) => html`<${State} word=${row.state} kind=${STATES[row.state]} />`},
  {title: "Reason", kind: "words", value: (row) => row.reason}];

const Steps = ({rows, columns, caption}) => html`<${Table} caption=${caption} rows=${rows} columns=${columns} identity=${(row) => `${row.step} ${row.name}`} />`;

/** A checked box for each kind of step. */
const Ticks = ({name, label, options}) => html`<fieldset><legend>${label}</legend>${options.map(([step, text]) => html`<label key=${step} class="check">
  <input type="checkbox" name=${name} value=${step} defaultChecked=${true} /> ${text}</label>`)}</fieldset>`;

/** What one person has now. */
function Belongings({name}) {
  const [isAsked, setAsked] = useState(false);
  const found = useQuery(() => leave(name, {dry_run: true}), [name], ["keys", "devices", "plans"]);
  const {data} = found;
  const steps = data ? Object.keys(KINDS).filter((step) => data.steps.some((each) => each.step === step)) : [];
  const namesOf = (step) => data.steps.filter((each) => each.step === step).map((each) => each.name).join(", ");
  const run = async ({on, steps: chosen}) => {
    const receipt = await leave(name, {on, steps: chosen});
    found.reload();
    return html`<${Steps} rows=${receipt.steps} columns=${RECEIPT} caption="Receipt" />`;
  };
  return html`<${Problem} error=${found.error} retry=${found.reload} />
    <${Loading} of=${found}>${data && html`<section><h2>${data.name || name}</h2>
      <p class="faint">${data.names.join(", ")}</p>
      <p class="bar"><a class="button" href=${to("/costs", {user: data.names[0], view: null})}>Costs</a>
        <a class="button" href=${to("/roles", {tab: "person", person: name, view: null})}>Rights</a>
        <a class="button" href=${to("/privacy", {person: name, view: null})}>Export or erase</a>
        ${steps.length > 0 && html`<button type="button" class="danger" onClick=${() => setAsked(true)}>This person leaves</button>`}</p>
      ${steps.length ? html`<${Steps} rows=${data.steps} columns=${COLUMNS} caption="Belongings" />`
        : html`<p class="faint">This person has no seat, device, key, role or account.</p>`}</section>`}<//>
    ${isAsked && html`<${Confirm} title="End these" danger close=${() => setAsked(false)} run=${run}
      text="Costs keep the name. The seats end after their last day, and everything else ends at once."
      fields=${[{name: "on", label: "Last day of the seats", type: "date", value: new Date().toISOString().slice(0, 10), required: true},
        {name: "steps", label: "End", type: Ticks, options: steps.map((step) => [step, `${KINDS[step]}: ${namesOf(step)}`])}]} />`}`;
}

export function Page({path}) {
  const name = decodeURIComponent(path.slice(PATH.length + 1));
  const show = (event) => {
    event.preventDefault();
    go(to(`${PATH}/${encodeURIComponent(new FormData(event.currentTarget).get("person").trim())}`, {view: null}));
  };
  return html`<form class="bar" onSubmit=${show}><label>Person <input name="person" key=${name} defaultValue=${name} required autocomplete="off"
      spellcheck=${false} placeholder="name in records, e-mail address or shown name" /></label>
      <button type="submit" class="main">Show</button></form>
    ${name && html`<${Belongings} key=${name} name=${name} />`}`;
}
