/**
 * One stream that says what changed. A page that shows it loads again: at most every five seconds, more seldom where that takes
 * long, and not while the reader points at a row, selects text or has a dialog open. A hidden page and a paused one hear nothing.
 * What was shown while nothing was heard is loaded again as soon as the stream opens.
 */
import {addressOf, get} from "./api.mjs";
import {useEffect, useRef, useState} from "./html.mjs";

const EVERY_MS = 5000;
const SHARE = 20; // one part of the time in so many goes into loading again
const FIRST_MS = 1000; // a page that is opened waits so long for the stream
const AGAIN_MS = 30000; // after an answer that ends the stream for good
const BUSY = "dialog[open], tbody tr:hover, select:focus";

const pages = new Set(); // {what, reload}
const changed = new Set(); // what nobody was told yet
let isListening = false;
let stream = null;
let isBehind = false; // something may have changed while nobody listened
let told = 0;
let rest = EVERY_MS;
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
  };
  stream.addEventListener("changed", (event) => JSON.parse(event.data).what.forEach((each) => changed.add(each)));
  stream.onerror = () => {
    isBehind = true;
    begin();
    become("not live");
    if (stream?.readyState !== EventSource.CLOSED) return;
    disconnect();
    get("/session").catch(() => {}); // a session that ended leads to the sign-in
    setTimeout(connect, AGAIN_MS);
  };
}

function disconnect() {
  isBehind = true;
  stream?.close();
  stream = null;
}

/** Waits until the stream is open and tells of every later change; not longer where it does not open soon. A page calls it before it loads. */
export async function listening() {
  await begun;
  if (stream?.readyState !== EventSource.OPEN) isBehind = true;
}

/** Whether somebody reads closely: then nothing that is shown may move. */
export const isBusy = () => document.querySelector(BUSY) || !getSelection().isCollapsed;

function tell() {
  if (!changed.size || document.hidden || isPaused || Date.now() - told < rest || isBusy()) return;
  told = Date.now();
  const concerned = [...pages].filter((page) => changed.has("all") || page.what.some((each) => changed.has(each)));
  changed.clear();
  Promise.all(concerned.map((page) => page.reload())).then(() => {
    rest = Math.max(EVERY_MS, SHARE * (Date.now() - told));
  });
}

/** Begins to listen; called once, when somebody is signed in. Ends with the function that it returns. */
export function listen() {
  isListening = true;
  const turned = () => (document.hidden ? disconnect() : connect());
  document.addEventListener("visibilitychange", turned);
  const timer = setInterval(tell, 500);
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

/** "live", "paused", "connecting" or "not live"; draws again when it changes. */
export function useLiveState() {
  const [shown, setShown] = useState(state);
  useEffect(() => {
    const heard = () => setShown(state);
    addEventListener("live", heard);
    return () => removeEventListener("live", heard);
  }, []);
  return shown;
}

/** Calls `reload` when one of `what` changed. */
export function useLive(what, reload) {
  const latest = useRef(reload);
  latest.current = reload;
  useEffect(() => {
    const page = {what, reload: () => latest.current()};
    pages.add(page);
    return () => pages.delete(page);
  }, [String(what)]);
}
