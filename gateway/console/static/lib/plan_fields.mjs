/** The form of a plan, and its conversion to the API's fields. */
const UNITS = [["usd", "dollars at list prices"], ["calls", "successful calls"], ["credits", "credits"]];
const NAMES = ["user", "since", "until", "team"];

/** Write seats as lines of USER,SINCE[,UNTIL[,TEAM]]. */
export const seatLines = (seats) => seats.map((each) => NAMES.map((name) => each[name] ?? "").join(",").replace(/,+$/, "")).join("\n");

/** Parse lines of USER,SINCE[,UNTIL[,TEAM]] into seats. Throws an error that names the first wrong line. */
export function seatsIn(text) {
  return text.split("\n").map((each) => each.trim()).filter(Boolean).map((line) => {
    const cells = line.split(",").map((each) => each.trim());
    if (cells.length < 2 || cells.length > NAMES.length) throw new Error(`${line} is not a seat: write USER,SINCE[,UNTIL[,TEAM]].`);
    return Object.fromEntries(cells.map((cell, place) => [NAMES[place], cell]));
  });
}

export const planFields = (row, views) => [
  {name: "name", label: "Name", value: row.name, required: true},
  {name: "view", label: "Calls of", type: "select", value: row.view, options: views.map(({id, name}) => [id, name]), note: "the view that contains the assistant's calls"},
  {name: "fee", label: "Fee", value: row.fee ?? "", note: "per seat and billing cycle, such as 19"},
  {name: "cycle_day", label: "First day of the billing cycle", value: row.cycle_day ?? 1, note: "day of the month, 1 to 31"},
  {name: "currency", label: "Currency", value: row.currency ?? "USD", note: "currency of the fee and of the price for extra usage"},
  {name: "unit", label: "Unit of the included usage", type: "select", value: row.unit ?? "usd", options: UNITS},
  {name: "included", label: "Included usage", value: row.included ?? "", note: "per seat and cycle; leave empty for unlimited"},
  {name: "credit_value", label: "Value of a credit", value: row.credit_value ?? "", note: "in dollars at list prices, such as 0.01; only for credits"},
  {name: "is_pooled", label: "Shared", type: "select", value: row.is_pooled ? "yes" : "", options: [["", "each seat has its own included usage"], ["yes", "all seats share their included usage"]]},
  {name: "overage_price", label: "Extra usage price", value: row.overage_price ?? "0", note: "per unit above the included usage"},
  {name: "billed_by", label: "Billed by", value: row.billed_by ?? "", note: "the provider that sends the bills for this plan, such as github (optional)"},
  {name: "seats", label: "Seats", type: "area", rows: 8, value: seatLines(row.seats ?? []), note: "USER,SINCE[,UNTIL[,TEAM]], one per line, such as ann@example.com,2026-11-01"},
];

/** Convert the form values to the API's fields. */
export const typedPlan = ({seats, is_pooled: pooled, fee, cycle_day: day, ...given}) => ({...given, fee: fee || "0", cycle_day: Number(day || 1), is_pooled: pooled === "yes", seats: seatsIn(seats)});
