/** Notifications to people and programs: the channels with their state, and every stored notification. */
import {to} from "../lib/address.mjs";
import {send} from "../lib/api.mjs";
import {channelFields, typedChannel} from "../lib/channel_fields.mjs";
import {ago, count, exactCount} from "../lib/format.mjs";
import {html} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Columns, Copy, State, Tabs, withCode} from "../lib/parts.mjs";

const PATH = "/notifications";
const needs = "operate_spool";
const STATES = {waiting: "wait", sent: "good", failed: "bad", discarded: "plain"};
const CHANNELS = {running: "good", failing: "wait", parked: "bad", removed: "plain"};
const SEVERITIES = {critical: "bad", warning: "wait", info: "plain"};

const column = (title, name, sort = name) => ({title, sort, value: (row) => row[name]});
const number = (title, name, sort) => ({title, sort, kind: "number", value: (row) => count(row[name]), exact: (row) => exactCount(row[name])});
const state = (kinds) => ({title: "State", sort: "state", value: (row) => html`<${State} word=${row.state} kind=${kinds[row.state]} />`});
const seen = (time) => (time ? html`<span title=${time}>${ago(time)}</span>` : "–");
const ids = (action, row) => send("POST", `${PATH}/${action}`, {ids: [row.id]}).then(() => null);
const shared = {at: PATH, what: ["notifications"]};

const OUTBOX = {
  ...shared, path: PATH, root: "notifications", caption: "notifications",
  identity: (row) => row.id, heading: (row) => row.title, one: (answer) => answer.notification,
  show: (id) => `${PATH}/${encodeURIComponent(id)}`,
  columns: [
    {...column("Title", "title", null), kind: "words"},
    state(STATES),
    {...column("Channel", "channel"), wide: true},
    {title: "Severity", wide: true, sort: "severity", value: (row) => html`<${State} word=${row.severity} kind=${SEVERITIES[row.severity]} />`},
    {...column("Kind", "kind", null), wide: true},
    {...number("Attempts", "attempts", "attempts"), wide: true},
    {title: "Since", sort: "at", value: (row) => seen(row.at)},
  ],
  Details: ({row}) => html`<p><${State} word=${row.state} kind=${STATES[row.state]} /> · ${row.channel} · ${row.severity} · ${seen(row.at)}</p>
    <p class="text">${withCode(row.text)}</p>
    ${row.link && html`<p><a href=${row.link} rel="noreferrer">${row.link}</a></p>`}
    ${row.error && html`<p class="wrong">${row.error}</p>`}
    <p class="faint">Attempts: ${exactCount(row.attempts)}.${row.state === "waiting" && row.not_before && ` Next attempt: ${row.not_before}.`}</p>`,
  actions: [
    {title: "Send again", needs, when: (row) => ["failed", "discarded"].includes(row.state), run: (row) => ids("retry", row),
      text: () => "The notification keeps its id, so a receiver can recognize and ignore a repeated one."},
    {title: "Try now", needs, when: (row) => row.state === "waiting", run: (row) => ids("retry", row)},
    {title: "Discard", needs, danger: true, when: (row) => ["waiting", "failed"].includes(row.state), run: (row) => ids("discard", row),
      text: () => "Nobody is notified. You can send it again as long as Tollhouse stores it."},
  ],
  empty: html`<h2>No notifications yet</h2><p>Budgets, insights, views and reports notify people and programs through
    <a href=${to(PATH, {tab: "channels"})}>channels</a>.</p>`,
};

const many = (action) => (row) => send("POST", `${PATH}/${action}`, {channel: row.name}).then((answer) => html`<p role="status">${
  action === "retry" ? `${count(answer.retried)} notifications are sent again` : `${count(answer.discarded)} notifications are discarded`}.</p>`);

/** Return the changed fields, without empty fields and without the type, which cannot change. */
const changed = ({type, ...given}) => Object.fromEntries(Object.entries(given).filter(([, value]) => value.length));

const CHANNELS_PATH = "/notification-channels";
const makes = "installation_administration";
const isOfConsole = (row) => row.origin === "console";

const CHANNEL_LIST = {
  ...shared, path: CHANNELS_PATH, root: "notification_channels", caption: "channels", identity: (row) => row.name,
  file: (row) => isOfConsole(row) && row.state !== "removed" && ["channels", row.name],
  columns: [
    column("Name", "name"),
    state(CHANNELS),
    column("Type", "type"),
    {title: "Made in", wide: true, value: (row) => (row.state === "removed" ? "–" : isOfConsole(row) ? "console" : "configuration")},
    {title: "Insights from", wide: true, value: (row) => row.insights},
    number("Waiting", "waiting", "waiting"),
    {...number("Sent", "sent"), wide: true},
    number("Failed", "failed"),
    {title: "Waiting since", wide: true, value: (row) => seen(row.oldest)},
  ],
  Details: ({row}) => html`<p class="bar"><a href=${to(PATH, {channel: row.name})}>Show notifications</a></p>
    ${row.reason && html`<p class="wrong">${row.reason}</p>`}<${Columns} of=${CHANNEL_LIST.columns} row=${row} />`,
  create: {title: "Add a channel", needs: makes, fields: () => channelFields({}), run: (_, given) => send("POST", CHANNELS_PATH, typedChannel(given)).then(() => null)},
  actions: [
    {title: "Test", needs, when: (row) => row.state !== "removed", text: (row) => `Tollhouse sends a test message to ${row.name}.`,
      run: (row) => send("POST", `/notification-channels/${encodeURIComponent(row.name)}/test`, {}).then(({notification}) => html`<p role="status">
        The test message is being sent. <a href=${to(PATH, {open: notification.id})}>See whether it arrived</a></p>`)},
    {title: "Edit", needs: makes, when: isOfConsole, fields: (row) => channelFields({...row, secret_since: true}),
      text: (row) => `Empty fields keep their value. If you change the address of ${row.name}, enter its secret again.`,
      run: (row, given) => send("PATCH", `${CHANNELS_PATH}/${encodeURIComponent(row.name)}`, changed(typedChannel(given))).then(() => null)},
    {title: "Delete", needs: makes, danger: true, when: isOfConsole, exact: (row) => row.name, text: () => "Budgets, views and reports that use this channel no longer notify anybody through it.",
      run: (row) => send("DELETE", `${CHANNELS_PATH}/${encodeURIComponent(row.name)}`).then(() => null)},
    {title: "Send failed notifications again", needs, when: (row) => row.failed > 0 && row.state !== "removed", run: many("retry")},
    {title: "Discard all waiting and failed notifications", needs, danger: true, when: (row) => row.waiting + row.failed > 0, exact: (row) => row.name, run: many("discard")},
  ],
  empty: html`<h2>No channels yet</h2><p>A channel sends budget alerts, insights and reports to a chat, by mail, or to a program. Add a channel here, or
    in tollhouse.toml, where secrets are in files:</p>
    <${Copy} label="a channel of the configuration" text=${["[[notify]]", 'name = "on-call"', 'type = "slack"', 'url_file = "keys/slack-address"'].join("\n")} />`,
};

export function Page(given) {
  const isChannels = given.query.get("tab") === "channels";
  return html`<${Tabs} path=${PATH} query=${given.query} tabs=${[["", "Notifications"], ["channels", "Channels"]]} />
    <${ListPage} key=${isChannels} list=${isChannels ? CHANNEL_LIST : OUTBOX} ...${given} />`;
}
