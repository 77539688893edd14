/** A sentence that says why a route is stopped, and that nothing is lost. */

const WRONG_KEY = ["401", "403"];
const UPSTREAM = "upstream"; // the route name of the [upstream] section

export function troubleOf({route, state, reason}) {
  const [destination, topic] = [route.slice(0, route.lastIndexOf("/")) || route, route.slice(route.lastIndexOf("/") + 1)];
  const receiver = destination === UPSTREAM ? "your cost service" : destination;
  const status = reason?.match(/^\d{3}\b/)?.[0];
  if (state === "orphaned") return `The configuration no longer has the destination ${destination}, so its ${topic} records wait. Nothing is lost`;
  if (state === "refusing") return `${receiver} rejects every record of ${topic}${reason ? `: ${reason}` : ""}. Nothing is lost`;
  const key = reason?.match(/\(key ([^()]+)\)$/)?.[1];
  const why = WRONG_KEY.includes(status) ? `${receiver} refuses Tollhouse's key${key ? ` ${key}` : ""} (${status})`
    : status ? `${receiver} does not accept records at this address (${status})` : reason ?? `${receiver} does not accept records`;
  return `Forwarding of ${topic} is paused: ${why}. Nothing is lost`;
}
