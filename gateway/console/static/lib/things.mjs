/** What something is called, with a link to its page while it is there: in place of its id. */
import {to} from "./address.mjs";
import {html} from "./html.mjs";

/** The address of one of a kind, by the first word of what is done to it. */
const PLACES = {
  view: (id) => to("/views", {open: id}), budget: (id) => to("/budgets", {open: id}), role: (id) => to("/roles", {open: id}),
  annotation: (id) => to("/annotations", {open: id}), scheduled_report: (id) => to("/reports", {open: id}), connection: (id) => to("/billing", {open: id}),
  insight: (id) => to("/insights", {open: id}), recommendation: (id) => to("/recommendations", {open: id}), key: (id) => to("/keys", {open: id}),
  operator: (id) => to("/settings", {tab: "operators", open: id}), channel: (_, name) => to("/notifications", {tab: "channels", open: name}),
  allocation_namespace: (id) => to("/allocation", {tab: "namespaces", open: id}), publish_job: (id) => to("/allocation", {tab: "jobs", open: id}),
  route: (id) => to("/delivery", {open: id}), device: (id) => to("/devices", {open: id}),
};

/** `exists`: it has a page. Without a name the id is shown. */
export function Thing({kind, id, name, exists = true}) {
  const shown = name ?? id;
  const address = exists && PLACES[kind]?.(id, name);
  return html`${address ? html`<a href=${address}>${shown}</a>` : shown}${!exists && name && html` <span class="faint">(gone)</span>`}`;
}
