/** Where senders reach this gateway. */

/** At the console's own address unless the server names another. */
export function receivedAt(telemetry) {
  const found = new URL(telemetry ?? "..", document.baseURI);
  if (["0.0.0.0", "[::]"].includes(found.hostname)) found.hostname = location.hostname;
  return found.href.replace(/\/$/, "");
}
