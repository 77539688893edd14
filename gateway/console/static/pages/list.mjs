/**
 * Every page of the console, in the order of the menu; one line a page. Its file is loaded when it is first opened. Neighbours of
 * one `group` stand together in the menu. A page is for who has the permission set that it `needs`, and if it is about all calls
 * (`isWhole`) for who may see them all.
 */
export const PAGES = [
  {path: "/", title: "Overview", shortcut: "o", needs: "view_costs", load: () => import("./overview.mjs")},
  {path: "/calls", title: "Calls", shortcut: "l", needs: "view_records", load: () => import("./calls.mjs")},
  {path: "/connect", title: "Connect", shortcut: "x", needs: "view_records", load: () => import("./connect.mjs")},
  {path: "/insights", title: "Insights", shortcut: "i", needs: "view_costs", load: () => import("./insights.mjs")},
  {path: "/costs", title: "Costs", shortcut: "c", group: "Money", needs: "view_costs", load: () => import("./costs.mjs")},
  {path: "/views", title: "Views", shortcut: "v", group: "Money", needs: "view_costs", load: () => import("./views.mjs")},
  {path: "/allocation", title: "Allocation", shortcut: "a", group: "Money", needs: "view_costs", isWhole: true, load: () => import("./allocation.mjs")},
  {path: "/budgets", title: "Budgets", shortcut: "u", group: "Money", needs: "view_costs", load: () => import("./budgets.mjs")},
  {path: "/recommendations", title: "Recommendations", shortcut: "r", group: "Money", needs: "view_recommendations", load: () => import("./recommendations.mjs")},
  {path: "/reports", title: "Scheduled reports", shortcut: "m", group: "Money", needs: "view_costs", load: () => import("./reports.mjs")},
  {path: "/notifications", title: "Notifications", shortcut: "n", group: "Money", needs: "view_operation", isWhole: true, load: () => import("./notifications.mjs")},
  {path: "/billing", title: "Billing", shortcut: "b", group: "Money", needs: "view_costs", isWhole: true, load: () => import("./billing.mjs")},
  {path: "/reconciliation", title: "Reconciliation", shortcut: "w", group: "Money", needs: "view_costs", isWhole: true, load: () => import("./reconciliation.mjs")},
  {path: "/devices", title: "Devices", shortcut: "d", needs: "view_operation", isWhole: true, load: () => import("./devices.mjs")},
  {path: "/keys", title: "API Keys", shortcut: "k", needs: "view_operation", isWhole: true, load: () => import("./keys.mjs")},
  {path: "/roles", title: "Roles", shortcut: "p", needs: "organization_administration", isWhole: true, load: () => import("./roles.mjs")},
  {path: "/streams", title: "Streams and events", shortcut: "s", needs: "view_telemetry_stream_settings", isWhole: true, load: () => import("./streams.mjs")},
  {path: "/delivery", title: "Delivery", shortcut: "y", needs: "view_operation", isWhole: true, load: () => import("./delivery.mjs")},
  {path: "/tail", title: "Live tail", shortcut: "t", needs: "view_records", load: () => import("./tail.mjs")},
  {path: "/settings", title: "Settings", shortcut: "e", isWhole: true, load: () => import("./settings.mjs")},
];
