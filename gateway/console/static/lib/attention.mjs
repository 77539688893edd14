/** What needs attention, as the server counts it: open critical insights and problems of the operation, one entry per cause. */
import {to} from "./address.mjs";
import {html} from "./html.mjs";

/** The next step for a cause, by its kind: the title and the address of a link. */
const STEPS = {
  insight: (open) => ["Show insight", to("/insights", {open})],
  registry: () => ["Show settings", to("/settings")],
  space: () => ["Show settings", to("/settings")],
  ledger: () => ["Show costs", to("/costs")],
  route: (open) => ["Show delivery", to("/delivery", {open})],
  dead: (route) => ["Show records", to("/delivery", {tab: "dead", route})],
  unknown: (route) => ["Show records", to("/streams", {tab: "unknown", route})],
  devices: (state) => ["Show laptops", to("/fleet", {state})],
  key: (open) => ["Show key", to("/keys", {open})],
  certificate: () => ["Show settings", to("/settings")],
  channel: (open) => ["Show channel", to("/notifications", {tab: "channels", open})],
  report: () => ["Show reports", to("/reports")],
  task: () => ["Show settings", to("/settings")],
  no_channel: () => ["Add a channel", to("/notifications", {tab: "channels"})],
};
const KINDS = {critical: ["bad", "✕"], warning: ["wait", "▲"]};

/** Causes as rows, each with one link. */
export const Causes = ({causes}) => html`<ul>${causes.map(({kind, severity, title, text, subject}) => {
  const [name, icon] = KINDS[severity];
  const [step, address] = STEPS[kind](subject);
  return html`<li key=${`${kind} ${subject}`} class=${name}><span aria-hidden="true">${icon}</span> <span>${text || title}</span> <a class="button" href=${address}
    aria-label=${`${step}: ${title}`}>${step}</a></li>`;
})}</ul>`;

/** One line with the number and the causes. It opens into a row per cause. `of`: the query of the frame. */
export function Attention({of: {data, error}}) {
  if (!data) return error && html`<p role="status" class="attention bad"><b>Tollhouse could not check what needs attention.</b> ${error.message}</p>`;
  const {count, operation, causes} = data;
  if (!causes.length) return html`<p role="status" class="attention good"><span aria-hidden="true">✓</span> ${operation ? "Nothing needs attention." : "No critical insights."}</p>`;
  return html`<details class=${`attention ${count ? "bad" : "wait"}`}><summary><b>${count ? `▲ ${count} critical` : "▲ Nothing is critical"}</b>${" "}
    <span>${causes.map(({title}) => title).join(" · ")}</span> <i>Show all</i></summary><${Causes} causes=${causes} /></details>`;
}
