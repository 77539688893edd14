/** The calls of coding assistants that machines lost, in words. */
import {to} from "./address.mjs";
import {get} from "./api.mjs";
import {counted, money} from "./format.mjs";
import {html} from "./html.mjs";
import {isOpen} from "./parts.mjs";
import {useQuery} from "./query.mjs";

const LEAST_SHARE = 0.01; // of the total, below which a page of costs shows no estimate
const MOST_DAYS = 400; // for which the gateway keeps losses
const dayOf = (time) => new Date(time).toISOString().slice(0, 10);

/** Return a sentence about the losses of a coverage, without its full stop. */
export const lossWords = ({calls, people, estimated_cost: cost}) => `At least ${counted(calls, "call")}${people ? ` of ${counted(people, "person", "people")}` : ""}
  ${calls === 1 ? "is" : "are"} missing${cost === null ? "" : `, about ${money(cost)}`}`;

/** A line below a total of all costs in USD, if the estimate of lost calls is a visible part of it. It is only for those who see the fleet. */
export function LostCalls({session, from, until, total}) {
  const [since, last] = [dayOf(from), dayOf(Date.parse(until) - 1)];
  const isShort = Date.parse(last) - Date.parse(since) < MOST_DAYS * 86_400_000;
  const isShown = isShort && isOpen(session, {needs: "view_operation", isWhole: true});
  const {data} = useQuery(async () => isShown && get("/fleet/coverage", {since, until: last}), [isShown, since, last], ["devices"]);
  const losses = data?.losses;
  return losses?.calls > 0 && Number(losses.estimated_cost) >= LEAST_SHARE * Number(total) && Number(losses.estimated_cost) > 0
    && html`<p role="note">${lossWords(losses)}, and not included. <a href=${to("/fleet")}>Show why</a></p>`;
}
