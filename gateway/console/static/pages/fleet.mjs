/** The fleet: how many machines report, why others do not, and the list of machines with their coding assistants. */
import {ageLinks} from "../lib/ages.mjs";
import {to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {ago, counted, exactCount} from "../lib/format.mjs";
import {html, useState} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {lossWords} from "../lib/lost_calls.mjs";
import {Fields, Loading, Problem, State, Table, withCode} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {stateName} from "../lib/words.mjs";
import {DeviceFacts, FleetTabs} from "./fleet_parts.mjs";

const PATH = "/fleet";
const CLASSES = {reporting: "good", unused: "idle", delayed: "idle", losing: "bad", agent_stopped: "bad", copied: "bad", unknown: "warn", at_risk: "warn", unseen: "warn",
  missing: "none", pending: "none", left: "none", revoked: "none"};
const TITLES = {"claude-code": "Claude Code", codex: "Codex", copilot: "Copilot", "gemini-cli": "Gemini CLI", "qwen-code": "Qwen Code", opencode: "opencode"};
const titleOf = (assistant) => TITLES[assistant] ?? assistant;
/** The name of a machine that never reported is its hostname, because its serial number says little. */
const nameOf = (row) => row.device ?? (row.hostname || row.id);
const listed = (filters) => to(PATH, filters);
const machines = (number) => counted(number, "machine");
const wordOf = ({state, cause}) => `${state}.${cause ?? ""}`;

/** The parts of the fleet as one bar. Each part leads to its machines. */
function Bar({states, total}) {
  const parts = Object.entries(states).filter(([, count]) => count > 0);
  let start = 0;
  return html`<svg class="cover" role="img" viewBox=${`0 0 ${total} 12`} preserveAspectRatio="none"
      aria-label=${parts.map(([state, count]) => `${count} ${stateName(state)}`).join(", ")}>${parts.map(([state, count]) => {
        start += count;
        return html`<rect key=${state} class=${CLASSES[state]} x=${start - count} width=${count} height="12" />`;
      })}</svg>
    <ul class="legend">${parts.map(([state, count]) => html`<li key=${state}><svg class="cover" width="12" height="12" aria-hidden="true"><rect class=${CLASSES[state]} width="12" height="12" /></svg>
      <a href=${listed({state})}><b>${exactCount(count)}</b> ${stateName(state)}</a></li>`)}</ul>`;
}

function Coverage() {
  const found = useQuery(() => get("/fleet/coverage"), [], ["devices", "keys"]);
  const {data, error, at, reload} = found;
  const late = data && data.states.unused + data.states.reporting + data.states.delayed - data.covered;
  return html`<${Problem} error=${error} at=${at} retry=${reload} />
    <${Loading} of=${found} blocks=${["tiles"]}>${data && html`
      ${data.machines > 0 && html`<div class="head"><div class="figure">${exactCount(data.covered)} of ${exactCount(data.machines)} report</div>
          <p class="faint">${data.states.unused > 0 && `This includes ${machines(data.states.unused)} that nobody uses for AI.`}
            ${late > 0 && ` Not included: ${machines(late)} whose calls wait longer than a day.`}
            ${data.away > 0 && html` <a href=${listed({away: "true"})}>${machines(data.away)}</a> ${data.away === 1 ? "is" : "are"} away and not counted.`} ${data.inventory
            ? html`Inventory from ${data.inventory.source}, imported <span title=${data.inventory.imported}>${ago(data.inventory.imported)}</span>.`
            : html`No inventory is imported, so all devices count.`}
            ${data.unexpected > 0 && html` <a href=${listed({expected: "false"})}>${exactCount(data.unexpected)} other devices</a> are not in the inventory.`}
            ${data.people.without_machine > 0 && html` ${exactCount(data.people.without_machine)} of ${exactCount(data.people.with_seat)} people with a seat use no known machine.`}</p></div>
        <${Bar} states=${data.states} total=${data.machines} />`}
      ${data.losses.calls > 0 && html`<p role="note">${lossWords(data.losses)}, in the last 7 days.${data.losses.covered_cost_percent !== null
        && ` ${data.losses.covered_cost_percent} % of the cost of coding assistants is counted.`}</p>`}
      ${data.causes.length > 0 && html`<${Table} caption="Causes" rows=${data.causes} identity=${wordOf} columns=${causeColumns(data.causes)} />`}`}<//>`;
}

/** A column for each assistant that has a cause, and the repair. */
function causeColumns(causes) {
  const assistants = [...new Set(causes.flatMap((each) => Object.keys(each.assistants)))].sort();
  return [
    {title: "What is wrong", kind: "words", value: (row) => html`<a href=${listed({cause: wordOf(row)})}>${row.words}</a>`},
    {title: "Machines", kind: "number", value: (row) => exactCount(row.devices)},
    ...assistants.map((name) => ({title: titleOf(name), kind: "number", wide: 2, value: (row) => (row.assistants[name]
      ? html`<a href=${listed({cause: `${name}.${wordOf(row)}`})}>${exactCount(row.assistants[name])}</a>` : "–")})),
    {title: "Repair", kind: "words", wide: 1, onPhone: "fact", value: (row) => withCode(row.repair)},
  ];
}

const ASSISTANT_COLUMNS = [
  {title: "Assistant", value: (each) => titleOf(each.name)},
  {title: "State", value: (each) => html`<${State} word=${each.state} />`},
  {title: "Cause", value: (each) => (each.cause ?? "").replaceAll("_", " ")},
  {title: "Version", wide: true, value: (each) => each.version ?? "unknown"},
  {title: "Newest call", value: (each) => (each.newest_call ? ago(each.newest_call) : "never"), exact: (each) => each.newest_call},
];

const whyOf = (row) => row.causes.map(({state, cause, words}) => {
  const names = row.assistants.filter((each) => each.state === state && each.cause === cause).map((each) => titleOf(each.name));
  return `${names.length > 1 ? "Each of " : ""}${names.join(", ") || "The machine"} ${words}`;
}).join("; ");

function Device({id}) {
  const found = useQuery(async () => (await get(`/devices/${encodeURIComponent(id)}`)).device, [id], ["devices", "keys"]);
  return html`<${Problem} error=${found.error} at=${found.at} retry=${found.reload} />${found.data && html`<${DeviceFacts} device=${found.data} />`}`;
}

function Details({row}) {
  return html`<p><${State} word=${row.state} /> ${whyOf(row)}</p>
    ${row.assistants.length > 0 && html`<${Table} caption="Coding assistants" rows=${row.assistants} columns=${ASSISTANT_COLUMNS} identity=${(each) => each.name} />`}
    <${Fields} of=${{used_by: row.user || null, assigned_to: row.assigned_to || null, team: row.team || null, host_name: row.hostname || null, serial_number: row.serial || null, system: row.os || null, agent: row.agent_version || null,
      last_report: row.last_seen && `${row.last_seen} (${ago(row.last_seen)})`, last_check_in: row.inventory_last_seen, in_the_inventory: row.expected ? "yes" : "no"}} />
    ${row.device && html`<${Device} id=${row.device} /><p class="bar"><a href=${to("/devices", {open: row.device})}>Show the device</a> <a href=${to("/costs", {device: row.device})}>Show its costs</a></p>`}`;
}

function found({devices}) {
  if (devices.length) return devices[0];
  throw Object.assign(new Error("The fleet has no such machine. It may have been renamed or deleted."), {status: 404});
}

const SOURCES = [["jamf", "Jamf"], ["intune", "Intune"], ["kandji", "Kandji"], ["csv", "another CSV file"]];

const put = ({file, ...asked}, confirm) => send("PUT", `/fleet/inventory?${new URLSearchParams({...asked, confirm})}`, new Blob([file], {type: "text/csv"}));
const rows = (count, what) => count > 0 && html` ${counted(count, "row was", "rows were")} left out: ${what}.`;

const Imported = ({answer}) => html`<p role="status">The inventory has ${machines(answer.inventory.machines)}: ${exactCount(answer.added)} added,
  ${" "}${exactCount(answer.removed)} removed.${rows(answer.repeated, "repeated machines")}${rows(answer.no_laptops, "phones or tablets")}
  ${answer.admitted > 0 && html` ${machines(answer.admitted)} enrolled as devices.`}</p>`;

/** Asks before a list that lacks more than a third of the machines is imported. */
function Confirmation({problem, again}) {
  const [answer, setAnswer] = useState(null);
  const [wrong, setWrong] = useState("");
  const [isBusy, setBusy] = useState(false);
  const run = () => {
    setBusy(true);
    again().then(setAnswer, (error) => setWrong(error.message)).finally(() => setBusy(false));
  };
  return answer ? html`<${Imported} answer=${answer} />` : html`<p role="alert">Nothing was imported: ${problem}. A part of a list hides machines.</p>
    <p role="alert" class="wrong">${wrong}</p>
    <button type="button" class="main danger" disabled=${isBusy} onClick=${run}>Import the list anyway</button>`;
}

async function importList(_, given) {
  try {
    return html`<${Imported} answer=${await put(given, false)} />`;
  } catch (error) {
    if (error.type !== "not_allowed") throw error;
    return html`<${Confirmation} problem=${error.message.split(". ")[0]} again=${() => put(given, true)} />`; // the rest names an option of the command
  }
}

const MACHINES = {
  path: "/fleet/devices", root: "devices", at: PATH, caption: "machines", what: ["devices", "keys"],
  titles: {expected: "in the inventory", id: "machine"},
  hints: {cause: "overridden.other_endpoint"}, Ages: ageLinks("no_report_for", "No report for"),
  identity: (row) => row.id, heading: nameOf,
  show: (id) => `/fleet/devices?id=${encodeURIComponent(id)}`, one: found,
  Above: Coverage, Details,
  columns: [
    {title: "Machine", value: nameOf, sort: "id", facts: (row) => [row.user]},
    {title: "State", kind: "words", value: (row) => html`<${State} word=${row.state} /> <small class="faint">${whyOf(row)}</small>`, sort: "state"},
    {title: "User", wide: 2, value: (row) => row.user || "unknown", sort: "user"},
    {title: "Team", wide: 3, value: (row) => row.team || "none", sort: "team"},
    {title: "System", wide: 4, value: (row) => row.os || "unknown", sort: "system"},
    {title: "Last report", wide: 2, value: (row) => (row.last_seen ? ago(row.last_seen) : "never"), exact: (row) => row.last_seen, sort: "last_seen", order: "desc"},
    {title: "Last call", wide: 1, value: (row) => ago(row.last_call), exact: (row) => row.last_call, sort: "last_call", order: "desc"},
  ],
  create: {title: "Import a machine list", needs: "operate_spool", run: importList,
    text: () => withCode("The list replaces the inventory. Export all machines from your MDM as CSV. To repeat this, run `tollhouse fleet inventory import FILE --source jamf`."),
    fields: () => [{name: "file", label: "CSV file", type: "file", required: true}, {name: "source", label: "Source", type: "select", options: SOURCES},
      {name: "admit", label: "Machines without a device", type: "select", options: [["false", "only list them"], ["true", "enrol their serial numbers"]]}]},
  empty: html`<h2>No machines yet</h2><p>Run <code>tollhouse agent</code> on each laptop, or import the machines of your MDM, to see which report and
    why others do not.</p>`,
};

export const Page = (given) => html`<${FleetTabs} now="fleet" /><${ListPage} list=${MACHINES} ...${given} />`;
