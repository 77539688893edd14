/**
 * Every page of the console, in menu order. A page's file is loaded when the page is first opened. Neighbours with the same `group`
 * share one menu entry, which opens the first of them, so that the menu has at most seven entries. A page needs the permission set
 * `needs`. If it is about all calls (`isWhole`), it also needs access to all calls, and `privacy.min_group` if it `hasGroups`. A page `under`
 * another page has no entry of its own in the menu.
 */
export const PAGES = [
  {path: "/", title: "Overview", shortcut: "o", needs: "view_costs", load: () => import("./overview.mjs")},
  {path: "/costs", title: "Costs", shortcut: "c", needs: "view_costs", load: () => import("./costs.mjs")},
  {path: "/groups", title: "Groups", shortcut: "1", group: "Money", needs: "view_costs", hasGroups: true, load: () => import("./groups.mjs")},
  {path: "/work", title: "Unit of work", shortcut: "j", under: "/costs", needs: "view_costs", load: () => import("./work.mjs")},
  {path: "/calls", title: "Calls", shortcut: "l", needs: "view_records", load: () => import("./calls.mjs")},
  {path: "/connect", title: "Connect", shortcut: "x", needs: "view_records", load: () => import("./connect.mjs")},
  {path: "/views", title: "Views", shortcut: "v", group: "Money", needs: "view_costs", load: () => import("./views.mjs")},
  {path: "/budgets", title: "Budgets", shortcut: "u", group: "Money", needs: "view_costs", load: () => import("./budgets.mjs")},
  {path: "/plans", title: "Plans", shortcut: "f", group: "Money", needs: "view_costs", load: () => import("./plans.mjs")},
  {path: "/contracts", title: "Contracts", shortcut: "g", group: "Money", needs: "view_costs", isWhole: true, load: () => import("./contracts.mjs")},
  {path: "/prices", title: "Prices", shortcut: "q", group: "Money", needs: "view_costs", isWhole: true, load: () => import("./prices.mjs")},
  {path: "/annotations", title: "Annotations", shortcut: "h", group: "Money", needs: "view_costs", load: () => import("./annotations.mjs")},
  {path: "/recommendations", title: "Recommendations", shortcut: "r", group: "Money", needs: "view_recommendations", load: () => import("./recommendations.mjs")},
  {path: "/allocation", title: "Allocation", shortcut: "a", group: "Money", needs: "view_costs", isWhole: true, load: () => import("./allocation.mjs")},
  {path: "/reconciliation", title: "Reconciliation", shortcut: "w", group: "Money", needs: "view_costs", isWhole: true, load: () => import("./reconciliation.mjs")},
  {path: "/billing", title: "Billing", shortcut: "b", group: "Money", needs: "view_costs", isWhole: true, load: () => import("./billing.mjs")},
  {path: "/insights", title: "Insights", shortcut: "i", group: "Alerts", needs: "view_costs", load: () => import("./insights.mjs")},
  {path: "/reports", title: "Scheduled reports", shortcut: "m", group: "Alerts", needs: "view_costs", load: () => import("./reports.mjs")},
  {path: "/notifications", title: "Notifications", shortcut: "n", group: "Alerts", needs: "view_operation", isWhole: true, load: () => import("./notifications.mjs")},
  {path: "/keys", title: "API Keys", shortcut: "k", group: "Administration", needs: "view_operation", isWhole: true, load: () => import("./keys.mjs")},
  {path: "/fleet", title: "Fleet", shortcut: "d", group: "Administration", needs: "view_operation", isWhole: true, load: () => import("./fleet.mjs")},
  {path: "/devices", title: "Devices", shortcut: "z", under: "/fleet", group: "Administration", needs: "view_operation", isWhole: true, load: () => import("./devices.mjs")},
  {path: "/streams", title: "Streams and events", shortcut: "s", group: "Administration", needs: "view_telemetry_stream_settings", isWhole: true, load: () => import("./streams.mjs")},
  {path: "/delivery", title: "Delivery", shortcut: "y", group: "Administration", needs: "view_operation", isWhole: true, load: () => import("./delivery.mjs")},
  {path: "/tail", title: "Live tail", shortcut: "t", group: "Administration", needs: "view_records", load: () => import("./tail.mjs")},
  {path: "/roles", title: "Roles", shortcut: "p", group: "Administration", needs: "organization_administration", isWhole: true, load: () => import("./roles.mjs")},
  {path: "/privacy", title: "Privacy requests", shortcut: "0", group: "Administration", needs: "answer_privacy_requests", isWhole: true, load: () => import("./privacy.mjs")},
  {path: "/settings", title: "Settings", shortcut: "e", group: "Administration", isWhole: true, load: () => import("./settings.mjs")},
];
