/**
 * One event stream that reports changes. A page that shows changed data reloads it at most every five seconds, or every minute
 * if loading is slow. It waits while the reader points at a row, selects text or has a dialog open. Hidden and paused consoles
 * close the stream; when it opens again, everything shown is loaded again.
 */
import {addressOf, get} from "./api.mjs";
import {useEffect, useRef, useState} from "./html.mjs";

const EVERY_MS = 5000;
const SHARE = 20; // reloading takes at most 1/20 of the time, up to LONGEST_MS between two reloads
const LONGEST_MS = 60000;
const FIRST_MS = 1000; // how long a new page waits for the stream
const RECONNECT_MS = 30000; // delay after a response that closed the stream for good
const BUSY = "dialog[open], :popover-open, tbody tr:hover, select:focus";

const pages = new Set(); // {what, reload}
const changed = new Set(); // changes that no page has loaded yet
let isListening = false;
let stream = null;
let isBehind = false; // something may have changed while the stream was closed
let reloadedAt = 0;
let pauseMs = EVERY_MS; // between two reloads
let isPaused = localStorage.getItem("paused") === "yes";
let state = isPaused ? "paused" : "connecting";
let begin;
const begun = new Promise((resolve) => {
  begin = resolve;
});

function become(next) {
  state = next;
  dispatchEvent(new CustomEvent("live"));
}

function connect() {
  if (stream || !isListening || isPaused || document.hidden) return;
  stream = new EventSource(addressOf("/changes"));
  stream.onopen = () => {
    if (isBehind) changed.add("all");
    isBehind = false;
    begin();
    become("live");
    reloadChanged();
  };
  stream.addEventListener("changed", (event) => JSON.parse(event.data).what.forEach((each) => changed.add(each)));
  stream.onerror = () => {
    isBehind = true;
    begin();
    become("not live");
    if (stream?.readyState !== EventSource.CLOSED) return;
    disconnect();
    get("/session").catch(() => {}); // if the session has ended, this shows the sign-in
    setTimeout(connect, RECONNECT_MS);
  };
}

function disconnect() {
  isBehind = true;
  stream?.close();
  stream = null;
}

/** Wait until the stream is open, at most about a second. Pages call this before they load, so that they miss no later change. */
export async function listening() {
  await begun;
  if (stream?.readyState !== EventSource.OPEN) isBehind = true;
}

/** Return whether the reader points at a row, selects text or has a dialog open. Then nothing on the page may move. */
export const isBusy = () => document.querySelector(BUSY) || !getSelection().isCollapsed;

function reloadChanged() {
  if (!changed.size || document.hidden || isPaused || Date.now() - reloadedAt < pauseMs || isBusy()) return;
  reloadedAt = Date.now();
  const concerned = [...pages].filter((page) => changed.has("all") || page.what.some((each) => changed.has(each)));
  changed.clear();
  const reloaded = async (page) => {
    if (await page.reload(true) === false) page.what.forEach((each) => changed.add(each));
  };
  Promise.all(concerned.map(reloaded)).then(() => {
    pauseMs = Math.min(LONGEST_MS, Math.max(EVERY_MS, SHARE * (Date.now() - reloadedAt)));
  });
}

/** Start the stream, once after sign-in. Returns the function that stops it. */
export function listen() {
  isListening = true;
  const turned = () => (document.hidden ? disconnect() : connect());
  document.addEventListener("visibilitychange", turned);
  const timer = setInterval(reloadChanged, 500);
  connect();
  if (stream) setTimeout(begin, FIRST_MS);
  else begin();
  return () => {
    document.removeEventListener("visibilitychange", turned);
    clearInterval(timer);
    isListening = false;
    disconnect();
  };
}

export function pause() {
  isPaused = !isPaused;
  localStorage.setItem("paused", isPaused ? "yes" : "no");
  become(isPaused ? "paused" : "connecting");
  if (isPaused) disconnect();
  else connect();
}

/** Return "live", "paused", "connecting" or "not live", and redraw the component when it changes. */
export function useLiveState() {
  const [shown, setShown] = useState(state);
  useEffect(() => {
    const heard = () => setShown(state);
    addEventListener("live", heard);
    return () => removeEventListener("live", heard);
  }, []);
  return shown;
}

/** Call `reload(true)` when the stream reports one of the changes in `what`, and again later if it returns false. */
export function useLive(what, reload) {
  const latest = useRef(reload);
  latest.current = reload;
  useEffect(() => {
    const page = {what, reload: (isLive) => latest.current(isLive)};
    pages.add(page);
    return () => pages.delete(page);
  }, [String(what)]);
}
