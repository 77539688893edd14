/** What is stated of an annotation: the fields of a dialog, named as the API takes them. */
export const annotationFields = (row, views, session) => [
  {name: "day", label: "Day", type: "date", value: row.day, required: true},
  {name: "text", label: "What happened", value: row.text, required: true, note: "such as a release, an incident or a contract"},
  {name: "view", label: "In the charts of", type: "select", value: row.view ?? "", note: "who may not see all of these calls does not see it",
    options: [...(session.is_limited ? [] : [["", "all calls"]]), ...views.map(({id, name}) => [id, name])]},
];
