/** The form of a notification channel, with the fields of its type, and its conversion to the API's fields. */
import {html, useState} from "./html.mjs";

const TYPES = {
  slack: ["Slack (also Mattermost, Discord, Google Chat)", [["secret", "Address of the incoming webhook"]]],
  teams: ["Microsoft Teams", [["secret", "Address of the workflow"]]],
  email: ["E-mail", [["server", "Mail server", "smtp.example.com:587"], ["sender", "From", "tollhouse@example.com"], ["to", "To", "addresses, separated by commas"],
    ["username", "User name", "optional"], ["secret", "Password", "optional"]]],
  webhook: ["Webhook", [["url", "Address"], ["secret", "Signing secret", "whsec_ followed by base64"]]],
  pagerduty: ["PagerDuty", [["secret", "Integration key"], ["url", "Address", "optional; Europe: https://events.eu.pagerduty.com/v2/enqueue"]]],
  alertmanager: ["Prometheus Alertmanager", [["url", "Address"], ["secret", "Bearer token", "optional"]]],
};
const OPTIONAL = /^optional/;
const LEVELS = [["none", "none"], ["info", "info and above"], ["warning", "warnings and above"], ["critical", "critical only"]];
const NAMES = ["type", "name", "url", "server", "sender", "to", "username", "secret", "tls", "insights"];
const nothing = () => null;

function ChannelForm({value: row}) {
  const [type, setType] = useState(row.type ?? "slack");
  const input = ([name, label, note]) => {
    const isKept = name === "secret" && row.secret_since;
    return html`<label key=${`${type} ${name}`}>${label} ${(isKept || note) && html`<span class="faint">${isKept ? "leave empty to keep" : note}</span>`}
      <input name=${name} type=${name === "secret" ? "password" : "text"} autocomplete="off" required=${!isKept && !OPTIONAL.test(note ?? "")}
        defaultValue=${name === "to" ? (row.to ?? []).join(", ") : name === "secret" ? "" : row[name]} /></label>`;
  };
  return html`${row.name ? html`<input type="hidden" name="type" value=${type} />` : html`<label>Kind
      <select name="type" value=${type} onChange=${(event) => setType(event.target.value)}>${Object.entries(TYPES).map(([name, [title]]) => html`
        <option key=${name} value=${name}>${title}</option>`)}</select></label>
    <label>Name <span class="faint">letters, digits, . _ and -</span><input name="name" autocomplete="off" required /></label>`}
    ${TYPES[type][1].map(input)}
    ${type === "email" && html`<label>Encryption <select name="tls" defaultValue=${row.tls ?? "starttls"}>${["starttls", "implicit", "none"].map((each) => html`
      <option key=${each} selected=${each === (row.tls ?? "starttls")}>${each}</option>`)}</select></label>`}
    <label>Insights to send <select name="insights">${LEVELS.map(([name, title]) => html`<option key=${name} value=${name}
      selected=${name === (row.insights ?? "warning")}>${title}</option>`)}</select></label>
    <p class="faint">Tollhouse stores the secret encrypted and never shows it again.</p>`;
}

/** Build the fields of a channel. The first one draws the whole form. */
export const channelFields = (row) => NAMES.map((name, place) => ({name, type: place ? nothing : ChannelForm, value: row}));

export function typedChannel(given) {
  const {to, secret, ...rest} = Object.fromEntries(Object.entries(given).map(([name, values]) => [name, values[0]]));
  const stated = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined));
  return {...stated, ...(to !== undefined && {to: to.split(",").map((each) => each.trim()).filter(Boolean)}), ...(secret && {secret: secret.trim()})};
}
