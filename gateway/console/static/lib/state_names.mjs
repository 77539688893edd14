/** The words that people read for states, where they differ from the API's values. */
const NAMES = {parked: "paused", refusing: "rejected", orphaned: "without a destination", silent: "offline", mute: "sends no calls", dead: "rejected",
  exact: "certain", strong: "very likely", weak: "likely"};

export const stateName = (state) => NAMES[state] ?? String(state).replaceAll("_", " ");
