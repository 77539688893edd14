/** What is stated of a plan: the fields of a dialog, and what was typed as the API takes it. */
const UNITS = [["usd", "dollars at list prices"], ["calls", "calls that worked"], ["credits", "credits"]];
const NAMES = ["user", "since", "until", "team"];

/** Seats as people type them: USER,SINCE[,UNTIL[,TEAM]], one a line. */
export const seatLines = (seats) => seats.map((each) => NAMES.map((name) => each[name] ?? "").join(",").replace(/,+$/, "")).join("\n");

/** The seats of such a text; an error names the line that is none. */
export function seatsIn(text) {
  return text.split("\n").map((each) => each.trim()).filter(Boolean).map((line) => {
    const cells = line.split(",").map((each) => each.trim());
    if (cells.length < 2 || cells.length > NAMES.length) throw new Error(`${line} is not a seat: write USER,SINCE[,UNTIL[,TEAM]].`);
    return Object.fromEntries(cells.map((cell, place) => [NAMES[place], cell]));
  });
}

export const planFields = (row, views) => [
  {name: "name", label: "Name", value: row.name, required: true},
  {name: "view", label: "Calls of", type: "select", value: row.view, options: views.map(({id, name}) => [id, name]), note: "the view of the assistant's calls"},
  {name: "fee", label: "Fee", value: row.fee ?? "", note: "for a seat and cycle, such as 19"},
  {name: "cycle_day", label: "Cycle begins on day", value: row.cycle_day ?? 1, note: "1 to 31"},
  {name: "currency", label: "Currency", value: row.currency ?? "USD", note: "of the fee and of the price beyond"},
  {name: "unit", label: "Includes", type: "select", value: row.unit ?? "usd", options: UNITS},
  {name: "included", label: "How much of it", value: row.included ?? "", note: "for a seat and cycle; empty: everything"},
  {name: "credit_value", label: "A credit is worth", value: row.credit_value ?? "", note: "in dollars at list prices, such as 0.01; of credits alone"},
  {name: "is_pooled", label: "Shared", type: "select", value: row.is_pooled ? "yes" : "", options: [["", "each seat has its own"], ["yes", "all seats share what they include"]]},
  {name: "overage_price", label: "Price beyond", value: row.overage_price ?? "0", note: "of each unit beyond what is included"},
  {name: "billed_by", label: "Statements of", value: row.billed_by ?? "", note: "the provider whose statements tell what was paid, such as github (optional)"},
  {name: "seats", label: "Seats", type: "area", rows: 8, value: seatLines(row.seats ?? []), note: "USER,SINCE[,UNTIL[,TEAM]], one a line: ann@example.com,2026-11-01"},
];

/** What was typed, as the API takes it. */
export const typedPlan = ({seats, is_pooled: pooled, fee, cycle_day: day, ...given}) => ({...given, fee: fee || "0", cycle_day: Number(day || 1), is_pooled: pooled === "yes", seats: seatsIn(seats)});
