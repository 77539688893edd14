/** The form of a scheduled report, and its conversion to the API's fields. */
import {ChannelBoxes} from "./shared_fields.mjs";

export const WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHLY = "month";
const words = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);
const DAYS = [...WEEKDAYS.map((name, place) => [`week ${place + 1}`, `every ${name}`]),
  ...[1, 2, 3, 5, 10, 15].map((day) => [`${MONTHLY} ${day}`, `every month, on day ${day}`])];

/** Build the form fields of a scheduled report. `channels` are names; `zone` is the browser's time zone. */
export function reportFields(row, views, channels, zone) {
  const when = row.every ? `${row.every} ${row.day}` : DAYS[0][0];
  return [
    {name: "name", label: "Name", value: row.name, required: true},
    {name: "view", label: "Costs of the view", type: "select", options: views.map((each) => [each.id, each.name]), value: row.view ?? views[0]?.id},
    {name: "when", label: "When", type: "select", options: DAYS.some(([each]) => each === when) ? DAYS : [...DAYS, [when, when]], value: when},
    {name: "at", label: "Time of day", type: "time", value: row.at ?? "08:00", required: true},
    {name: "time_zone", label: "Time zone", value: row.time_zone ?? zone, required: true},
    {name: "channels", label: "Send to", type: ChannelBoxes, value: row.channels ?? channels.slice(0, 1), options: channels},
    {name: "people", label: "People", value: (row.people ?? []).join(", "), note: "account e-mails, separated by commas (optional). Each person gets a mail with only the calls that they may see."},
  ];
}

export function typedReport({name, view, when, at, time_zone, channels, people}) {
  const [every, day] = when.split(" ");
  return {name, view, every, day: Number(day), at, time_zone, channels, people: words(people)};
}
