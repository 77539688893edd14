/**
 * Every page of the console, in the order of the menu; one line a page. Its file is loaded when it is first opened. Neighbours of
 * one `group` stand together in the menu.
 */
export const PAGES = [
  {path: "/", title: "Overview", shortcut: "o", load: () => import("./overview.mjs")},
  {path: "/calls", title: "Calls", shortcut: "l", load: () => import("./calls.mjs")},
  {path: "/insights", title: "Insights", shortcut: "i", load: () => import("./insights.mjs")},
  {path: "/costs", title: "Costs", shortcut: "c", group: "Money", load: () => import("./costs.mjs")},
  {path: "/views", title: "Views", shortcut: "v", group: "Money", load: () => import("./views.mjs")},
  {path: "/allocation", title: "Allocation", shortcut: "a", group: "Money", load: () => import("./allocation.mjs")},
  {path: "/budgets", title: "Budgets", shortcut: "u", group: "Money", load: () => import("./budgets.mjs")},
  {path: "/recommendations", title: "Recommendations", shortcut: "r", group: "Money", load: () => import("./recommendations.mjs")},
  {path: "/notifications", title: "Notifications", shortcut: "n", group: "Money", load: () => import("./notifications.mjs")},
  {path: "/billing", title: "Billing", shortcut: "b", group: "Money", load: () => import("./billing.mjs")},
  {path: "/reconciliation", title: "Reconciliation", shortcut: "w", group: "Money", load: () => import("./reconciliation.mjs")},
  {path: "/devices", title: "Devices", shortcut: "d", load: () => import("./devices.mjs")},
  {path: "/keys", title: "API Keys", shortcut: "k", load: () => import("./keys.mjs")},
  {path: "/roles", title: "Roles", shortcut: "p", load: () => import("./roles.mjs")},
  {path: "/streams", title: "Streams and events", shortcut: "s", load: () => import("./streams.mjs")},
  {path: "/delivery", title: "Delivery", shortcut: "y", load: () => import("./delivery.mjs")},
  {path: "/tail", title: "Live tail", shortcut: "t", load: () => import("./tail.mjs")},
  {path: "/settings", title: "Settings", shortcut: "e", load: () => import("./settings.mjs")},
];
