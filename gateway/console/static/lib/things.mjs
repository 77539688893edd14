/** The name of an object instead of its id, with a link to its page while the object exists. */
import {to} from "./address.mjs";
import {html} from "./html.mjs";

/** Address of an object's page, by the first word of the audit action or the kind of a search result. */
export const PLACES = {
  view: (id) => to("/views", {open: id}), budget: (id) => to("/budgets", {open: id}), role: (id) => to("/roles", {open: id}),
  annotation: (id) => to("/annotations", {open: id}), report: (id) => to("/reports", {open: id}), scheduled_report: (id) => to("/reports", {open: id}), connection: (id) => to("/billing", {open: id}),
  insight: (id) => to("/insights", {open: id}), recommendation: (id) => to("/recommendations", {open: id}), key: (id) => to("/keys", {open: id}),
  operator: (id) => to("/settings", {tab: "operators", open: id}), channel: (_, name) => to("/notifications", {tab: "channels", open: name}),
  allocation_namespace: (id) => to("/allocation", {tab: "namespaces", open: id}), publish_job: (id) => to("/allocation", {tab: "jobs", open: id}),
  machine: (id) => to("/fleet", {open: id}), cluster: (id) => to("/devices", {tab: "clusters", open: id}), plan: (id) => to("/plans", {open: id}),
  contract: (id) => to("/contracts", {open: id}), price: (id) => to("/prices", {open: id}), setting: (id) => to("/settings", {open: id}),
  route: (id) => to("/delivery", {open: id}), device: (id) => to("/devices", {open: id}),
};

/** The name of an object. If it has no name, its id is shown. `exists`: the object still exists, so the name is a link. */
export function Thing({kind, id, name, exists = true}) {
  const shown = name ?? id;
  const address = exists && PLACES[kind]?.(id, name);
  return html`${address ? html`<a href=${address}>${shown}</a>` : shown}${!exists && name && html` <span class="faint">(deleted)</span>`}`;
}
