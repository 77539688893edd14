/** Why a route stands still, said as who does what, and what is not wrong. */

const WRONG_KEY = ["401", "403"];
const OURS = "upstream"; // the destination of [upstream] in every configuration

export function troubleOf({route, state, reason}) {
  const [destination, topic] = [route.slice(0, route.lastIndexOf("/")) || route, route.slice(route.lastIndexOf("/") + 1)];
  const who = destination === OURS ? "the cost service" : destination;
  const status = reason?.match(/^\d{3}\b/)?.[0];
  if (state === "orphaned") return `The configuration has no destination ${destination} any more, and ${topic} for it waits. Nothing is lost`;
  if (state === "refusing") return `${who} refuses every record of ${topic}${reason ? `: ${reason}` : ""}. Nothing is lost`;
  const key = reason?.match(/\(key ([^()]+)\)$/)?.[1];
  const why = WRONG_KEY.includes(status) ? `${who} refuses our key${key ? ` ${key}` : ""} (${status})`
    : status ? `${who} does not take them at this address (${status})` : reason ?? `${who} does not take them`;
  return `Forwarding of ${topic} is paused: ${why}. Nothing is lost`;
}
