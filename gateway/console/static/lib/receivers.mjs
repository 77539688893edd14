/** The address at which senders reach this gateway. */

/** Return the address for senders: the server's setting, or the console's own address. */
export function receivedAt(telemetry) {
  const found = new URL(telemetry ?? "..", document.baseURI);
  if (["0.0.0.0", "[::]"].includes(found.hostname)) found.hostname = location.hostname;
  return found.href.replace(/\/$/, "");
}
