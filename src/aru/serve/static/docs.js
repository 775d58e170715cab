// Shows the OpenAPI document of this service. Text is never inserted as HTML.
"use strict";

function element(kind, text, ...children) {
  const node = document.createElement(kind);
  if (text) node.textContent = text;
  node.append(...children);
  return node;
}

function resolve(schema, types) {
  return schema && schema.$ref ? types[schema.$ref.split("/").pop()] : schema;
}

function table(rows) {
  const cells = (row) => row.map((cell, i) => element("td", "", i ? document.createTextNode(cell) : element("code", cell)));
  return element("table", "", ...rows.map((row) => element("tr", "", ...cells(row))));
}

function operation(path, method, about, types) {
  const part = element("section", "", element("h2", `${method.toUpperCase()} ${path}`));
  part.append(element("p", about.description || about.summary));
  const parameters = (about.parameters || []).map((p) => [p.name, `${p.in}. ${p.description || ""}`]);
  if (parameters.length) part.append(table(parameters));
  const content = about.requestBody ? about.requestBody.content : {};
  for (const [kind, body] of Object.entries(content)) {
    const schema = resolve(body.schema, types);
    part.append(element("p", `${kind}: ${schema.description || ""}`));
    if (schema.examples) part.append(element("pre", JSON.stringify(schema.examples[0], null, 2)));
  }
  part.append(table(Object.entries(about.responses).map(([status, answer]) => {
    const json = (answer.content || {})["application/json"];
    const schema = json ? resolve(json.schema, types) : null;
    const fields = status === "200" && schema && schema.properties ? ` { ${Object.keys(schema.properties).join(", ")} }` : "";
    return [status, answer.description + fields];
  })));
  return part;
}

fetch("/openapi.json").then((answer) => answer.json()).then((api) => {
  const target = document.getElementById("operations");
  for (const [path, methods] of Object.entries(api.paths))
    for (const [method, about] of Object.entries(methods))
      target.append(operation(path, method, about, api.components.schemas));
});
