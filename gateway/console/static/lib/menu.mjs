/** A menu behind one button, which in table rows has three dots. The browser closes an open menu on Escape, a click outside, or another menu. */
import {html, useEffect, useRef, useState} from "./html.mjs";

const GAP_PX = 4; // between the button and its menu
let made = 0; // menus so far, for their ids

/**
 * A menu. `label`: its name, such as "Actions for search". `items`: {title, href} or {title, act, danger}; a string draws a line.
 * `look`: the class of the button; `children`: what it shows. `act` runs after the menu has closed and the button has the focus again, so that a dialog returns the focus to the button.
 */
export function Menu({label, items, look = "dots", children = "…"}) {
  const [id] = useState(() => `menu-${made++}`);
  const [isOpen, setOpen] = useState(false);
  const [dots, box] = [useRef(null), useRef(null)];
  const toggled = ({newState}) => {
    setOpen(newState === "open");
    if (newState === "closed" && document.activeElement === document.body) dots.current.focus();
  };
  useEffect(() => {
    if (!isOpen) return;
    const [row, menu] = [dots.current, box.current]; // after the page has gone, the references are empty
    let frame = 0;
    const follow = () => { // data that arrives later moves the row
      const button = row.getBoundingClientRect();
      const below = button.bottom + GAP_PX;
      const hasRoom = below + menu.offsetHeight <= innerHeight || menu.offsetHeight + GAP_PX > button.top;
      menu.style.top = `${scrollY + (hasRoom ? below : button.top - GAP_PX - menu.offsetHeight)}px`;
      menu.style.left = `${Math.max(GAP_PX, button.right - menu.offsetWidth)}px`;
      frame = requestAnimationFrame(follow);
    };
    follow();
    menu.firstElementChild.focus();
    return () => cancelAnimationFrame(frame);
  }, [isOpen]);
  const pressed = (event) => {
    const all = [...box.current.querySelectorAll("[role=menuitem]")];
    const at = all.indexOf(document.activeElement);
    const next = {ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1}[event.key];
    if (event.key === " ") document.activeElement.click();
    else if (event.key === "Tab") box.current.hidePopover();
    else if (next !== undefined) all.at(next % all.length).focus();
    if (next !== undefined || event.key === " ") event.preventDefault();
  };
  const chosen = (act) => (event) => {
    event.stopPropagation(); // a click on the row opens it
    box.current.hidePopover();
    act?.();
  };
  const item = ({title, href, act, danger}) => (href
    ? html`<a key=${title} role="menuitem" tabindex="-1" href=${href} onClick=${chosen()}>${title}</a>`
    : html`<button key=${title} type="button" role="menuitem" tabindex="-1" class=${danger && "danger"} onClick=${chosen(act)}>${title}</button>`);
  return html`<button ref=${dots} type="button" class=${look} popovertarget=${id} aria-haspopup="menu" aria-expanded=${isOpen} aria-label=${label}>${children}</button>
    <div ref=${box} id=${id} class="menu" popover="auto" role="menu" aria-label=${label} onToggle=${toggled} onKeyDown=${pressed} onClick=${chosen()}>
      ${isOpen && items.map((each, place) => (typeof each === "string" ? html`<hr key=${place} />` : item(each)))}</div>`;
}

/** A table column with the menu of each row. `nameOf(row)` names the row; `items(row)` may contain falsy items, which are left out. */
export const menuColumn = (nameOf, items) => ({
  title: html`<span class="unseen">Actions</span>`, kind: "act",
  value: (row) => {
    const shown = items(row).filter(Boolean);
    return shown.length > 0 && html`<${Menu} label=${`Actions for ${nameOf(row)}`} items=${shown} />`;
  },
});
