/** Parts of the two pages of the fleet: their tabs, and further facts of one device. */
import {to} from "../lib/address.mjs";
import {ago} from "../lib/format.mjs";
import {html} from "../lib/html.mjs";
import {Fields, State, Table} from "../lib/parts.mjs";

const DEVICES = "/devices";
const TABS = [["fleet", "Fleet", to("/fleet")], ["devices", "Devices", to(DEVICES)], ["clusters", "Clusters", to(DEVICES, {tab: "clusters"})],
  ["files", "Container files", to(DEVICES, {tab: "files"})], ["unenrolled", "Not enrolled", to(DEVICES, {tab: "unenrolled"})],
  ["tokens", "Enrolment tokens", to(DEVICES, {tab: "tokens"})]];

/** The parts of the fleet, on two pages. */
export const FleetTabs = ({now}) => html`<nav class=${`tabs ${now === "fleet" ? "across" : ""}`} aria-label="Parts of this page">${TABS.map(([name, title, address]) => html`<a key=${name}
  href=${address} aria-current=${name === now ? "true" : undefined}>${title}</a>`)}</nav>`;

const linkTo = (id) => html`<a href=${to("/devices", {open: id})}>${id}</a>`;
const listed = (ids) => ids.map((id, place) => html`<span key=${id}>${place > 0 && ", "}${linkTo(id)}</span>`);
const PENDING = {not_expected: "The device is pending because it is not in the inventory.",
  same_hardware: "The device is pending because another device has its hardware id."};

const CHANGE_COLUMNS = [{title: "Since", value: (each) => ago(each.at), exact: (each) => each.at}, {title: "State", value: (each) => html`<${State} word=${each.state} />`}];

/** `device`: a device as GET /devices/{id} returns it. */
export function DeviceFacts({device}) {
  const {id, token, replaces, replaced_by: later} = device;
  const same = device.same_hardware.filter((each) => each !== later);
  return html`${later && html`<p><${State} word="replaced" /> The same machine is now ${linkTo(later)}. Its earlier records keep the name ${id}.</p>`}
    ${device.copied && html`<p><${State} word="copied" /> At ${device.copied}, a heartbeat showed that two machines may use one disk. If the machine was restored
      from a snapshot, approve the device. Otherwise delete the copy and reset the device.</p>`}
    ${replaces.length > 0 && html`<p>Before it was installed again, this machine was ${listed(replaces)}.</p>`}
    ${same.length > 0 && html`<p>The same hardware id is reported by ${listed(same)}.</p>`}
    ${PENDING[device.cause] && html`<p>${PENDING[device.cause]}</p>`}
    ${device.state_changes.length > 0 && html`<${Table} caption="Changes of the state" rows=${device.state_changes} columns=${CHANGE_COLUMNS} identity=${(each) => each.at} />`}
    <${Fields} of=${{enrolment_token: token, hardware_id: device.hardware_id, key_storage: device.key_storage}}
      leads=${(name) => name === "enrolment_token" && to("/devices", {tab: "tokens", open: token})} />`;
}
