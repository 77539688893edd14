/** The entries of the menu, in order. Neighbours with the same `group` stand below its name. `icon`: the lines of a picture of 16 by 16. */
export const MENU = [
  {name: "Overview", icon: "M2.5 2.5h4.5v6H2.5zM9 2.5h4.5v3.5H9zM9 8h4.5v5.5H9zM2.5 10.5h4.5v3H2.5z"},
  {name: "Costs", icon: "M2.5 13.5h11M4 11V7M8 11V3M12 11V5.5"},
  {name: "Calls", icon: "M2.5 4h11M2.5 8h11M2.5 12h7"},
  {name: "Insights", icon: "M1.5 8.5h3l2-5 3 9 2-4h3"},
  {name: "Budgets", group: "Control", icon: "M2.5 12a6 6 0 1 1 11 0M8 9l2.5-3"},
  {name: "Recommendations", group: "Control", icon: "M8 2v12M11 4.5c-.6-.8-1.7-1.2-3-1.2-1.7 0-3 .8-3 2.2 0 3.2 6.2 1.6 6.2 4.8 0 1.5-1.4 2.4-3.2 2.4-1.5 0-2.7-.5-3.3-1.5"},
  {name: "Reconciliation", group: "Control", icon: "M2.5 4.5 4.5 6.5 7.5 3M9.5 5h4M2.5 11 4.5 13l3-3.5M9.5 11.5h4"},
  {name: "Prices", group: "Terms", icon: "M2.5 8.5v-6h6l5 5-6 6zM4.9 5.5a0.6 0.6 0 1 0 1.2 0a0.6 0.6 0 1 0 -1.2 0"},
  {name: "Contracts", group: "Terms", icon: "M4 1.5h5.5L12.5 4.5v10h-8.5zM6.5 8h4M6.5 11h4"},
  {name: "Plans", group: "Terms", icon: "M3 5.5a2.5 2.5 0 1 0 5 0a2.5 2.5 0 1 0 -5 0M1.5 13.5c.3-2.5 1.8-4 4-4s3.7 1.5 4 4M10.5 3.5a2.5 2.5 0 0 1 0 4.5M11.5 9.7c1.6.5 2.7 1.8 3 3.8"},
  {name: "Allocation", group: "Terms", icon: "M2 8h4l3-4.5h5M6 8l3 4.5h5"},
  {name: "Connect", group: "Set up", icon: "M5.5 1.5v4M10.5 1.5v4M3.5 5.5h9v2a4.5 4.5 0 0 1-9 0zM8 12v2.5"},
  {name: "Fleet", group: "Set up", icon: "M3 3h10v7.5H3zM1.5 13h13"},
  {name: "People", group: "Set up", icon: "M5 5a3 3 0 1 0 6 0a3 3 0 1 0 -6 0M2.5 14c.5-3 2.5-4.5 5.5-4.5s5 1.5 5.5 4.5"},
  {name: "Administration", group: "Set up", icon: "M2 4.5h6M12 4.5h2M2 11.5h2M8 11.5h6M8.2 4.5a1.8 1.8 0 1 0 3.6 0a1.8 1.8 0 1 0 -3.6 0M4.2 11.5a1.8 1.8 0 1 0 3.6 0a1.8 1.8 0 1 0 -3.6 0"},
];

/**
 * Every page of the console, in menu order. A page's file is loaded when the page is first opened. An `entry` of the menu opens the first of
 * its pages that the person may open, which shows the others as tabs. A page `under` another page has neither an entry nor a tab. A page
 * needs the permission set `needs`, or one of several. If it is about all calls (`isWhole`), it also needs access to all calls, and `privacy.min_group` if it
 * `hasGroups`. The address /people/NAME opens the page of /people.
 */
export const PAGES = [
  {path: "/", title: "Overview", shortcut: "o", entry: "Overview", needs: "view_costs", load: () => import("./overview.mjs")},
  {path: "/costs", title: "Costs", shortcut: "c", entry: "Costs", needs: "view_costs", load: () => import("./costs.mjs")},
  {path: "/views", title: "Views", shortcut: "v", entry: "Costs", needs: "view_costs", load: () => import("./views.mjs")},
  {path: "/groups", title: "Groups", shortcut: "1", entry: "Costs", needs: "view_costs", hasGroups: true, load: () => import("./groups.mjs")},
  {path: "/annotations", title: "Annotations", shortcut: "h", entry: "Costs", needs: "view_costs", load: () => import("./annotations.mjs")},
  {path: "/work", title: "Unit of work", shortcut: "j", under: "/costs", needs: "view_costs", load: () => import("./work.mjs")},
  {path: "/calls", title: "Calls", shortcut: "l", entry: "Calls", needs: "view_records", load: () => import("./calls.mjs")},
  {path: "/insights", title: "Insights", shortcut: "i", entry: "Insights", needs: "view_costs", load: () => import("./insights.mjs")},
  {path: "/reports", title: "Scheduled reports", shortcut: "m", entry: "Insights", needs: "view_costs", load: () => import("./reports.mjs")},
  {path: "/notifications", title: "Notifications", shortcut: "n", entry: "Insights", needs: "view_operation", isWhole: true, load: () => import("./notifications.mjs")},
  {path: "/budgets", title: "Budgets", shortcut: "u", entry: "Budgets", needs: "view_costs", load: () => import("./budgets.mjs")},
  {path: "/recommendations", title: "Recommendations", shortcut: "r", entry: "Recommendations", needs: "view_recommendations", load: () => import("./recommendations.mjs")},
  {path: "/reconciliation", title: "Reconciliation", shortcut: "w", entry: "Reconciliation", needs: "view_costs", isWhole: true, load: () => import("./reconciliation.mjs")},
  {path: "/billing", title: "Billing", shortcut: "b", entry: "Reconciliation", needs: "view_costs", isWhole: true, load: () => import("./billing.mjs")},
  {path: "/prices", title: "Prices", shortcut: "q", entry: "Prices", needs: "view_costs", isWhole: true, load: () => import("./prices.mjs")},
  {path: "/contracts", title: "Contracts", shortcut: "g", entry: "Contracts", needs: "view_costs", isWhole: true, load: () => import("./contracts.mjs")},
  {path: "/plans", title: "Plans", shortcut: "f", entry: "Plans", needs: "view_costs", load: () => import("./plans.mjs")},
  {path: "/allocation", title: "Allocation", shortcut: "a", entry: "Allocation", needs: "view_costs", isWhole: true, load: () => import("./allocation.mjs")},
  {path: "/connect", title: "Connect", shortcut: "x", entry: "Connect", needs: "view_records", load: () => import("./connect.mjs")},
  {path: "/fleet", title: "Fleet", shortcut: "d", entry: "Fleet", needs: "view_operation", isWhole: true, load: () => import("./fleet.mjs")},
  {path: "/devices", title: "Devices", shortcut: "z", under: "/fleet", needs: "view_operation", isWhole: true, load: () => import("./devices.mjs")},
  {path: "/people", title: "Person", shortcut: "2", entry: "People", needs: "organization_administration", isWhole: true, load: () => import("./person.mjs")},
  {path: "/roles", title: "Roles", shortcut: "p", entry: "People", needs: "organization_administration", isWhole: true, load: () => import("./roles.mjs")},
  {path: "/privacy", title: "Privacy requests", shortcut: "0", entry: "People", needs: ["answer_privacy_requests", "organization_administration"], isWhole: true, load: () => import("./privacy.mjs")},
  {path: "/keys", title: "API Keys", shortcut: "k", entry: "Administration", needs: "view_operation", isWhole: true, load: () => import("./keys.mjs")},
  {path: "/streams", title: "Streams and events", shortcut: "s", entry: "Administration", needs: "view_telemetry_stream_settings", isWhole: true, load: () => import("./streams.mjs")},
  {path: "/delivery", title: "Delivery", shortcut: "y", entry: "Administration", needs: "view_operation", isWhole: true, load: () => import("./delivery.mjs")},
  {path: "/tail", title: "Live tail", shortcut: "t", entry: "Administration", needs: "view_records", load: () => import("./tail.mjs")},
  {path: "/settings", title: "Settings", shortcut: "e", entry: "Administration", isWhole: true, load: () => import("./settings.mjs")},
];
