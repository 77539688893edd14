/** The form fields of an annotation, named as in the API. */
export const annotationFields = (row, views, session) => [
  {name: "day", label: "Day", type: "date", value: row.day, required: true},
  {name: "text", label: "What happened", value: row.text, required: true, note: "such as a release, an incident or a contract"},
  {name: "view", label: "Shown in charts of", type: "select", value: row.view ?? "", note: "people who may not see all of these calls do not see the annotation",
    options: [...(session.is_limited ? [] : [["", "all calls"]]), ...views.map(({id, name}) => [id, name])]},
];
