/** A person: what the person has, what a new person gets, and the end of it when the person leaves. */
import {go, to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
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

/** One of several choices, or none. */
const Choice = ({name, label, options}) => html`<fieldset><legend>${label}</legend>${[["", "none"], ...options].map(([id, text]) => html`<label key=${id} class="check">
  <input type="radio" name=${name} value=${id} defaultChecked=${id === ""} /> ${text}</label>`)}</fieldset>`;

const today = () => new Date().toISOString().slice(0, 10);

/** What an organization can give a person. */
async function offers() {
  const [{plans}, {roles}, {operators}] = await Promise.all([get("/plans", {limit: 1000}), get("/roles", {is_builtin: false, limit: 1000}), get("/operators", {limit: 1000})]);
  return {plans, roles, operators};
}

/** Give a person a seat and a role, and enable an account that was disabled. Return a receipt. What the person has already stays. */
async function join(person, {plan: planId, team, role: roleId}, {plans, roles, operators}) {
  const receipt = [];
  const take = async (step, name, run) => {
    const refused = await run().then(() => null, (error) => error);
    receipt.push({step, name, state: !refused ? "done" : refused.status === 403 ? "not_allowed" : "failed", reason: refused?.message ?? ""});
  };
  const [plan, role, account] = [plans.find(({id}) => planId.includes(id)), roles.find(({id}) => roleId.includes(id)), operators.find(({email}) => email === person.toLowerCase())];
  const ends = plan?.seats.filter(({user}) => user === person).map(({until}) => until);
  const seat = {user: person, since: [today(), ...(ends ?? [])].sort().at(-1), until: "", team: team.trim()};
  if (plan && !ends.includes("")) await take("seats", plan.name, () => send("PATCH", `/plans/${plan.id}`, {seats: [...plan.seats, seat], version: plan.version}));
  if (role && !role.members.includes(person)) await take("roles", role.name, () => send("PATCH", `/roles/${role.id}`, {members: [...role.members, person], version: role.version}));
  if (account?.status === "Disabled") await take("account", account.email, () => send("PATCH", `/operators/${encodeURIComponent(account.email)}`, {status: "Enabled"}));
  return receipt;
}

/** What one person has now. */
function Belongings({name}) {
  const [problem, setProblem] = useState(null);
  const [isAsked, setAsked] = useState(false);
  const [offered, setOffered] = useState(null); // while the dialog of a person who joins is open
  const found = useQuery(() => leave(name, {dry_run: true}), [name], ["keys", "devices", "plans"]);
  const {data} = found;
  const steps = data ? Object.keys(KINDS).filter((step) => data.steps.some((each) => each.step === step)) : [];
  const namesOf = (step) => data.steps.filter((each) => each.step === step).map((each) => each.name).join(", ");
  const run = async ({on, steps: chosen}) => {
    const receipt = await leave(name, {on, steps: chosen});
    found.reload();
    return html`<${Steps} rows=${receipt.steps} columns=${RECEIPT} caption="Receipt" />`;
  };
  const add = async (chosen) => {
    const receipt = await join(name, chosen, offered);
    found.reload();
    return html`${receipt.length ? html`<${Steps} rows=${receipt} columns=${RECEIPT} caption="Receipt" />` : html`<p>The person has all of this already.</p>`}
      <p><a href=${to("/devices", {tab: "tokens", form: "open", view: null})}>Create a token that enrols the person's machine</a></p>`;
  };
  const choices = (rows) => rows.map((each) => [each.id, each.name]);
  return html`<${Problem} error=${found.error} retry=${found.reload} />
    <${Loading} of=${found}>${data && html`<section><h2>${data.name || name}</h2>
      <p class="faint">${data.names.join(", ")}</p>
      <p class="bar"><a class="button" href=${to("/costs", {user: data.names[0], view: null})}>Costs</a>
        <a class="button" href=${to("/roles", {tab: "person", person: name, view: null})}>Rights</a>
        <a class="button" href=${to("/privacy", {person: name, view: null})}>Export or erase</a>
        <button type="button" onClick=${() => offers().then(setOffered, setProblem)}>This person joins</button>
        ${steps.length > 0 && html`<button type="button" class="danger" onClick=${() => setAsked(true)}>This person leaves</button>`}</p>
      ${steps.length ? html`<${Steps} rows=${data.steps} columns=${COLUMNS} caption="Belongings" />`
        : html`<p class="faint">This person has no seat, device, key, role or account.</p>`}</section>`}<//>
    ${problem && html`<p role="alert" class="wrong">${problem.message}</p>`}
    ${offered && html`<${Confirm} title="Give these" close=${() => setOffered(null)} run=${add}
      fields=${[{name: "plan", label: "Seat, from today", type: Choice, options: choices(offered.plans)}, {name: "team", label: "Team that pays for the seat"},
        {name: "role", label: "Role, if the name is an e-mail address", type: Choice, options: choices(offered.roles)}]} />`}
    ${isAsked && html`<${Confirm} title="End these" danger close=${() => setAsked(false)} run=${run}
      text="Costs keep the name. The seats end after their last day, and everything else ends at once."
      fields=${[{name: "on", label: "Last day of the seats", type: "date", value: today(), required: true},
        {name: "steps", label: "End", type: Ticks, options: steps.map((step) => [step, `${KINDS[step]}: ${namesOf(step)}`])}]} />`}`;
}

/** The name in an address. A wrong escape that somebody typed stays as it is. */
function nameIn(path) {
  const written = path.slice(PATH.length + 1);
  try {
    return decodeURIComponent(written);
  } catch {
    return written;
  }
}

export function Page({path}) {
  const name = nameIn(path);
  const show = (event) => {
    event.preventDefault();
    go(to(`${PATH}/${encodeURIComponent(new FormData(event.currentTarget).get("person").trim())}`, {view: null}));
  };
  return html`<form class="bar" onSubmit=${show}><label>Person <input name="person" key=${name} defaultValue=${name} required autocomplete="off"
      spellcheck=${false} placeholder="name in records, e-mail address or shown name" /></label>
      <button type="submit" class="main">Show</button></form>
    ${name && html`<${Belongings} key=${name} name=${name} />`}`;
}
