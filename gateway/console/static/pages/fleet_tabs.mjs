/** The tabs of the fleet, which lead to two pages. */
import {to} from "../lib/address.mjs";
import {html} from "../lib/html.mjs";

const DEVICES = "/devices";
const TABS = [["fleet", "Fleet", to("/fleet")], ["devices", "Devices", to(DEVICES)], ["clusters", "Clusters", to(DEVICES, {tab: "clusters"})],
  ["files", "Container files", to(DEVICES, {tab: "files"})], ["unenrolled", "Not enrolled", to(DEVICES, {tab: "unenrolled"})],
  ["tokens", "Enrolment tokens", to(DEVICES, {tab: "tokens"})]];

/** The parts of the fleet, on two pages. */
export const FleetTabs = ({now}) => html`<nav class=${`tabs ${now === "fleet" ? "across" : ""}`} aria-label="Parts of this page">${TABS.map(([name, title, address]) => html`<a key=${name}
  href=${address} aria-current=${name === now ? "true" : undefined}>${title}</a>`)}</nav>`;
