/** Privacy requests: what would be erased, the erasure and an export of a person, and who looked at figures of people. */
import {go, to} from "../lib/address.mjs";
import {addressOf, get, send} from "../lib/api.mjs";
import {counted, exactCount, timeText} from "../lib/format.mjs";
import {html, useState} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Confirm, Loading, Problem, State, Table, Tabs, isOpen} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";

const PATH = "/privacy";
const KINDS = {done: "good", pending: "wait", ask: "bad"};
const CHOICES = [["yes", "Yes"], ["no", "No"]];
const choice = (name, label, note) => ({name, label, note, type: "select", options: CHOICES, value: "no"});
const at = (person, act) => `/people/${encodeURIComponent(person)}/${act}`;
const erase = async (person, choices) => (await send("POST", at(person, "erase"), choices)).erasure;

const COLUMNS = [
  {title: "Place", value: (row) => row.place},
  {title: "State", value: (row) => html`<${State} word=${row.state} kind=${KINDS[row.state]} />`},
  {title: "Count", kind: "number", value: (row) => (row.count === null ? "" : exactCount(row.count))},
  {title: "Until", wide: true, value: (row) => (row.until ? timeText(row.until) : "")},
  {title: "What happens", kind: "words", value: (row) => row.what},
];

/** The places of an erasure, with everything that each place lists. */
function Receipt({of}) {
  const listed = of.places.filter((place) => place.listed.length);
  return html`<${Table} caption="Places" columns=${COLUMNS} rows=${of.places} identity=${(row) => row.place} />
    ${listed.map(({place, listed: names}) => html`<details key=${place}><summary>${place}: ${counted(names.length, "entry", "entries")}</summary>
      <ul>${names.map((name) => html`<li key=${name}>${name}</li>`)}</ul></details>`)}`;
}

function Done({of}) {
  return html`<section><h2>The person is erased</h2><p>${counted(of.calls, "call")} are shown as (erased). Store the
    ${" "}<a href=${addressOf("/erasures")} download="erasures.json">file of erasures</a> with the backups. A restore needs it.</p>
    <${Receipt} of=${of} /></section>`;
}

/** What an erasure of the person would change. */
function Preview({person, act}) {
  const preview = useQuery(() => erase(person, {dry_run: true}), [person]);
  return html`<${Problem} error=${preview.error} retry=${preview.reload} />
    <${Loading} of=${preview}>${preview.data && html`<section><h2>${person}</h2>
      <p>${counted(preview.data.names, "name")} with ${counted(preview.data.calls, "call")}. Nothing is changed yet. Link all names of the person first.</p>
      <p class="bar"><a class="button" href=${addressOf(at(person, "export"))} download="person.ndjson">Download the data</a>
        <button type="button" class="danger" onClick=${act}>Erase</button></p>
      <${Receipt} of=${preview.data} /></section>`}<//>`;
}

function Requests({query}) {
  const person = query.get("person") ?? "";
  const [isAsked, setAsked] = useState(false);
  const [done, setDone] = useState(null);
  const search = (event) => {
    event.preventDefault();
    setDone(null);
    go(to(PATH, {person: new FormData(event.currentTarget).get("person").trim(), view: null}));
  };
  const run = async ({texts, devices}) => {
    setDone(await erase(person, {confirm: person, texts: texts === "yes", devices: devices === "yes"}));
    go(to(PATH, {view: null}), {replaces: true}); // the address has the name
    return null;
  };
  return html`<form class="bar" onSubmit=${search}><label>Person <input name="person" key=${person} defaultValue=${person} required
      autocomplete="off" spellcheck=${false} placeholder="name in records, e-mail address or shown name" /></label>
      <button type="submit" class="main">Show</button></form>
    ${done && html`<${Done} of=${done} />`}
    ${!done && person && html`<${Preview} key=${person} person=${person} act=${() => setAsked(true)} />`}
    ${isAsked && html`<${Confirm} title="Erase" danger exact=${person} close=${() => setAsked(false)} run=${run}
      text="Every name of the person is replaced by a pseudonym. No sum changes. This cannot be undone."
      fields=${[choice("texts", "Replace the name in texts", "such as comments and descriptions"), choice("devices", "Revoke devices of the person", "and delete user, hostname and serial number")]} />`}`;
}

const VIEWINGS = {
  path: "/people/viewings", root: "viewings", at: PATH, caption: "viewings", hints: {day: "2026-11-20"},
  identity: (row) => Object.values(row).join(" "),
  columns: [{title: "Who looked", value: (row) => row.viewer}, {title: "At", value: (row) => row.user}, {title: "Day", sort: "day", order: "desc", value: (row) => row.day},
    {title: "With", wide: true, value: (row) => row.face}, {title: "Page", wide: true, value: (row) => html`<code>${row.page}</code>`}, {title: "Reason", wide: 2, value: (row) => row.reason ?? ""}],
  Before: () => html`<p class="faint">One row for each viewer, person, page and day. A list of people is one row with (several people).</p>`,
};

const RIGHT = "answer_privacy_requests";
const ROLE = {name: "Privacy requests", description: "Erase and export people.", data_access: "full", filters: [], cost_types: [], permission_sets: [RIGHT], groups: []};

/** Why the page is closed, and for whoever may create roles, a form that gives somebody the role. */
function Closed({session}) {
  const [{problem, person}, setState] = useState({});
  const give = async (event) => {
    event.preventDefault();
    const person = new FormData(event.currentTarget).get("person").trim();
    try {
      const made = (await get("/roles", {limit: 1000})).roles.find((each) => each.name === ROLE.name && each.permission_sets.includes(RIGHT));
      await (made ? send("PATCH", `/roles/${made.id}`, {members: [...new Set([...made.members, person])], version: made.version}) : send("POST", "/roles", {...ROLE, members: [person]}));
      if (person === session.actor) location.reload(); // the session has the rights from now on
      setState({person});
    } catch (refused) {
      setState({problem: refused});
    }
  };
  return html`<p>To erase or export a person, you need a role with the permission set Answer Privacy Requests and access to all calls. No built-in role has
    it, so an Admin has to create one.</p>
    ${isOpen(session, {needs: "organization_administration", isWhole: true}) && html`<form class="bar" onSubmit=${give}>
      <label>Create the role and give it to <input name="person" type="email" required autocomplete="off" placeholder="e-mail address" /></label>
      <button type="submit" class="main">Create</button></form>`}
    ${problem && html`<p role="alert" class="wrong">${problem.message}</p>`}
    ${person && html`<p role="status">${person} has the <a href=${to("/roles")}>role</a> ${ROLE.name}.</p>`}`;
}

export function Page(given) {
  if (!isOpen(given.session, {needs: RIGHT, isWhole: true})) return html`<${Closed} session=${given.session} />`;
  const isList = given.query.get("tab") === "viewings";
  return html`<${Tabs} path=${PATH} query=${given.query} tabs=${[["requests", "Requests"], ["viewings", "Who looked"]]} />
    ${isList ? html`<${ListPage} list=${VIEWINGS} ...${given} />` : html`<${Requests} query=${given.query} />`}`;
}
