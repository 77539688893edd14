/** The time range in the address. A relative range stays relative in links. */
import {go, here} from "./address.mjs";
import {dayText} from "./format.mjs";
import {html, useState} from "./html.mjs";

const DAY_MS = 86400000;
const HOURS = "now-24h";
const NAMES = {
  [HOURS]: "Last 24 hours",
  today: "Today",
  yesterday: "Yesterday",
  "now-7d": "Last 7 days",
  "this-week": "This week",
  "last-week": "Last week",
  "now-30d": "Last 30 days",
  "now-90d": "Last 90 days",
  "this-month": "This month",
  "last-month": "Last month",
  "this-quarter": "This quarter",
  "last-quarter": "Last quarter",
  "this-year": "This year",
};
/** Return the `from` parameter for a named range of the server. */
export const fromOf = (range) => range.replace(/^last_(?=\d)/, "now-").replaceAll("_", "-");
/** Return the server's name of a `from` parameter, or undefined if it has none. */
export const rangeOf = (from) => (NAMES[from] && from !== HOURS ? from.replace("now-", "last_").replaceAll("-", "_") : undefined);
/** Return the title of a named range of the server. */
export const rangeName = (range) => NAMES[fromOf(range)];
/** All named ranges of the server, each once. */
export const RANGES = Object.keys(NAMES).map(rangeOf).filter(Boolean);

const OWN = Intl.DateTimeFormat().resolvedOptions().timeZone;
export const ZONES = [...new Set(["UTC", OWN])];

/** Write a Date as its UTC day, such as "2026-11-21". */
export const day = (date) => date.toISOString().slice(0, 10);
export const daysBefore = (date, days) => new Date(date.getTime() - days * DAY_MS);
/** Return the newest twelve months, such as "2026-11", the running month first. */
export const months = (now = new Date()) => Array.from({length: 12}, (_, place) =>
  day(new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() - place, 1))).slice(0, 7));
const isDay = (text) => /^\d{4}-\d\d-\d\d$/.test(text ?? "") && !Number.isNaN(Date.parse(text));

/** Return today's date in a time zone, as a UTC Date at midnight for counting days. */
const today = (zone) => new Date(`${new Intl.DateTimeFormat("sv-SE", {timeZone: zone}).format(new Date())}T00:00Z`);

/** Return {from, to, name} of the range in the address. Without `to`, the range reaches until now. For an unknown range, return the default range. */
export function span(query, byDefault = "now-30d") {
  const now = today(zoneOf(query));
  const [from, until] = [query.get("from"), query.get("to")];
  if (isDay(from)) return {from, to: isDay(until) ? until : undefined, name: `${dayText(from)} to ${isDay(until) ? dayText(until) : "now"}`};
  const asked = NAMES[from] || /^now-\d{1,3}[hd]$/.test(from ?? "") ? from : byDefault;
  const name = NAMES[asked] ?? `Last ${asked.slice(4, -1)} ${asked.endsWith("h") ? "hours" : "days"}`;
  const calendar = ofCalendar(asked, now);
  if (calendar) return {from: day(calendar[0]), to: calendar[1] && day(calendar[1]), name, asked};
  const many = Number(asked.slice(4, -1));
  if (asked.endsWith("d")) return {from: day(daysBefore(now, many - 1)), name, asked};
  const hour = new Date(Date.now() - (many - 1) * 3600000);
  return {from: `${hour.toISOString().slice(0, 13)}:00:00Z`, name, asked};
}

/** Return a range as address parameters. A relative range stays relative. */
export const inAddress = ({asked, from, to}) => (asked ? {from: asked} : {from, to});

/** Return the first and the last day of a calendar range. Without a last day, the range reaches until now. Weeks begin on Monday. */
function ofCalendar(asked, now) {
  const monday = daysBefore(now, (now.getUTCDay() + 6) % 7);
  const [year, month] = [now.getUTCFullYear(), now.getUTCMonth()];
  const first = (place) => new Date(Date.UTC(year, place, 1));
  const quarter = (step) => first(Math.floor(month / 3) * 3 + 3 * step);
  return {
    today: [now],
    "this-week": [monday],
    "this-month": [first(month)],
    "last-month": [first(month - 1), daysBefore(first(month), 1)],
    "this-year": [first(0)],
    yesterday: [daysBefore(now, 1), daysBefore(now, 1)],
    "last-week": [daysBefore(monday, 7), daysBefore(monday, 1)],
    "this-quarter": [quarter(0)],
    "last-quarter": [quarter(-1), daysBefore(quarter(0), 1)],
  }[asked];
}

/** Return the parts of the address that name no known range or time zone, as text, or "". */
function misread(query) {
  const [from, until, zone] = [query.get("from"), query.get("to"), query.get("tz")];
  const isKnown = !from || NAMES[from] || isDay(from) || /^now-\d{1,3}[hd]$/.test(from);
  return [!isKnown && `from=${from}`, until && !isDay(until) && `to=${until}`, zone && !ZONES.includes(zone) && `tz=${zone}`]
    .filter(Boolean).join(" and ");
}

const HOURS_DAYS = 62; // for so many days, the totals have hours; before, they have whole UTC days
const LONG = ["now-90d", "this-quarter", "last-quarter", "this-year"];

/** Return whether the range in the address may begin before the stored hours. */
function isLong(query) {
  const from = query.get("from") ?? "";
  return LONG.includes(from) || Number(from.match(/^now-(\d+)d$/)?.[1]) >= HOURS_DAYS || (isDay(from) && Date.now() - Date.parse(from) > (HOURS_DAYS - 1) * DAY_MS);
}

/** Return the time zone in the address, or UTC if the address has none or the range is longer than hours are stored. */
export function zoneOf(query) {
  if (isLong(query)) return "UTC";
  const asked = query.get("tz") ?? "UTC";
  return ZONES.includes(asked) ? asked : "UTC";
}

/** A picker for the time zone. Older sums are whole UTC days, so a longer range has no other zone. */
export const ZonePicker = ({query}) => ZONES.length > 1 && html`<select aria-label="Time zone" value=${zoneOf(query)} disabled=${isLong(query)}
  onChange=${(event) => go(here({tz: event.target.value === "UTC" ? "" : event.target.value}))}>
  ${ZONES.map((each) => html`<option key=${each}>${each}</option>`)}</select>`;

/** A picker for the time range, with two date fields for any days. `isOfDays`: only whole UTC days. `isAlone`: without the time zone. */
export function RangePicker({query, byDefault = "now-30d", isOfDays = false, isAlone = false}) {
  const [isOwn, setOwn] = useState(false);
  const now = span(query, byDefault);
  const choose = (from, until) => go(here({from: from === byDefault ? "" : from, to: until}));
  const chosen = (event) => (event.target.value === "own" ? setOwn(true) : choose(event.target.value));
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    setOwn(false);
    choose(form.get("from"), form.get("to"));
  };
  return html`<span class="filters">
    <select aria-label="Range" value=${now.asked ?? "own"} onChange=${chosen}>
      ${Object.entries(NAMES).filter(([value]) => !isOfDays || !value.endsWith("h")).map(([value, name]) => html`<option key=${value} value=${value}>${name}</option>`)}
      ${now.asked && !NAMES[now.asked] && html`<option value=${now.asked}>${now.name}</option>`}
      <option value="own">${now.asked ? "Choose days ..." : now.name}</option></select>
    ${(isOwn || !now.asked) && html`<form class="filters" onSubmit=${submit}>
      <input type="date" name="from" aria-label="First day" defaultValue=${now.asked ? "" : now.from} required />
      <input type="date" name="to" aria-label="Last day" defaultValue=${now.to} />
      <button type="submit">Show</button></form>`}
    ${!isAlone && !isOfDays && html`<${ZonePicker} query=${query} />`}
    ${!isAlone && (isOfDays || ZONES.length === 1) && html`<span class="faint">UTC</span>`}
    ${misread(query) && html`<span role="alert" class="wrong">The address has an unknown time range (${misread(query)}), so the page shows
      ${" "}${now.name.toLowerCase()}. Write days as 2026-11-20.</span>`}</span>`;
}
