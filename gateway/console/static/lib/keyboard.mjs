/** Single-key shortcuts. People can switch them off, and they do nothing while the focus is in a field. */
import {go, to} from "./address.mjs";
import {html, useEffect, useState} from "./html.mjs";
import {Dialog} from "./parts.mjs";

const KEYS = [["/ or Ctrl+K", "Search"], ["j k", "Next row, previous row"], ["Enter", "Open the row"], ["↑ ↓", "Row above or below, while a row is open"], ["r", "Pause or resume updates"],
  ["t", "Next theme"], ["?", "Show this help"], ["Esc", "Close"]];
const ROW = "tbody tr a";

/**
 * Listen for shortcuts. `actions` maps a key to its function. The key g and a page's letter open that page. `early.current` is what was typed
 * since the search was opened, or null if it is not loading.
 */
export function useKeyboard(pages, actions, early) {
  useEffect(() => {
    let afterG = 0;
    const pressed = (event) => {
      if (early.current !== null && !event.ctrlKey && !event.metaKey && !event.target.closest("dialog")) {
        early.current = event.key === "Backspace" ? early.current.slice(0, -1) : early.current + (event.key === "Enter" ? "\n" : event.key.length === 1 ? event.key : "");
        event.preventDefault();
        return;
      }
      if (event.key === "k" && (event.ctrlKey || event.metaKey) && !event.target.closest("dialog")) {
        event.preventDefault();
        actions["/"]();
      }
      if (event.ctrlKey || event.metaKey || event.altKey || localStorage.getItem("shortcuts") === "off") return;
      if (event.target.closest("input, select, textarea, dialog, [popover]")) return;
      const page = Date.now() - afterG < 1500 && pages.find((each) => each.shortcut === event.key);
      afterG = event.key === "g" ? Date.now() : 0;
      if (page) go(to(page.path));
      else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
      else if (actions[event.key]) actions[event.key]();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  });
}

function step(by) {
  const rows = [...document.querySelectorAll(ROW)];
  const at = rows.indexOf(document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.focus();
}

export function Help({pages, close}) {
  const [isOff, setOff] = useState(localStorage.getItem("shortcuts") === "off");
  const set = (event) => {
    localStorage.setItem("shortcuts", event.target.checked ? "on" : "off");
    setOff(!event.target.checked);
  };
  return html`<${Dialog} title="Keyboard shortcuts" close=${close}>
    <label class="check"><input type="checkbox" checked=${!isOff} onChange=${set} /> Use keyboard shortcuts</label>
    <dl class="fields">${[...KEYS, ...pages.map((each) => [`g ${each.shortcut}`, each.title])].map(([key, text]) => html`<div
      key=${key}><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}</dl>
  <//>`;
}
