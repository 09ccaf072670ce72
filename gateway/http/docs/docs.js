"use strict";
// Draws the API's description and lets people try it. Nothing is loaded from anywhere else.

function element(name, fields, ...children) {
  const made = Object.assign(document.createElement(name), fields);
  made.append(...children.filter((child) => child !== null));
  return made;
}

function resolve(document, schema) {
  if (schema && schema.$ref) {
    return schema.$ref.split("/").slice(1).reduce((at, name) => at[name], document);
  }
  return schema || {};
}

function example(document, schema, depth = 0) {
  const found = resolve(document, schema);
  const inner = found.anyOf ? found.anyOf[0] : found;
  if (depth > 4) return null;
  if (inner.$ref) return example(document, inner, depth + 1);
  if (inner.default !== undefined) return inner.default;
  if (inner.type === "object" && inner.properties) {
    return Object.fromEntries(
      Object.entries(inner.properties).map(([name, part]) => [name, example(document, part, depth + 1)]),
    );
  }
  const empty = { string: "", integer: 0, number: 0, boolean: false, array: [], object: {} };
  return empty[inner.type] ?? null;
}

function parameterRow(parameter, inputs) {
  const input = element("input", { placeholder: parameter.schema?.type || "" });
  inputs.push([parameter, input]);
  const name = parameter.required ? `${parameter.name} *` : parameter.name;
  return element(
    "tr", {},
    element("td", {}, element("code", { textContent: name })),
    element("td", { textContent: `${parameter.in}${parameter.description ? ": " + parameter.description : ""}` }),
    element("td", {}, input),
  );
}

async function send(method, path, inputs, body, file, output) {
  const query = new URLSearchParams();
  for (const [parameter, input] of inputs) {
    if (parameter.in === "path") path = path.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
    else if (input.value !== "") query.set(parameter.name, input.value);
  }
  const options = { method: method.toUpperCase(), headers: {} };
  const token = document.getElementById("token").value;
  if (token) options.headers.Authorization = `Bearer ${token}`;
  if (file && file.files.length) {
    options.body = new FormData();
    options.body.append("file", file.files[0]);
  } else if (body && body.value.trim()) {
    options.headers["Content-Type"] = "application/json";
    options.body = body.value;
  }
  const address = query.size ? `${path}?${query}` : path;
  try {
    const answer = await fetch(address, options);
    const text = await answer.text();
    let shown = text;
    try { shown = JSON.stringify(JSON.parse(text), null, 2); } catch { /* It is no JSON. */ }
    output.textContent = `${answer.status} ${answer.statusText}\n\n${shown}`;
  } catch (error) {
    output.textContent = String(error);
  }
}

function operation(described, path, method, facts) {
  const inputs = [];
  const parameters = facts.parameters || [];
  const content = facts.requestBody?.content || {};
  const body = content["application/json"]
    ? element("textarea", { rows: 6, value: JSON.stringify(example(described, content["application/json"].schema), null, 2) })
    : null;
  const file = content["multipart/form-data"] ? element("input", { type: "file" }) : null;
  const output = element("pre", { hidden: true });
  const button = element("button", { textContent: "Send" });
  button.addEventListener("click", () => {
    output.hidden = false;
    send(method, path, inputs, body, file, output);
  });
  const table = element("table", {}, ...parameters.map((one) => parameterRow(one, inputs)));
  const answers = Object.entries(facts.responses || {}).map(([status, one]) => `${status} ${one.description}`);
  return element(
    "details", {},
    element("summary", {}, element("b", { textContent: method.toUpperCase() }), element("code", { textContent: path })),
    element(
      "div", {},
      element("p", { textContent: facts.description || facts.summary || "" }),
      parameters.length ? table : null,
      body, file, button, output,
      element("p", {}, element("small", { textContent: answers.join(" · ") })),
    ),
  );
}

async function draw() {
  const place = document.getElementById("operations");
  const answer = await fetch("/openapi.json");
  const described = await answer.json();
  const groups = new Map();
  for (const [path, methods] of Object.entries(described.paths)) {
    for (const [method, facts] of Object.entries(methods)) {
      const tag = (facts.tags || ["other"])[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operation(described, path, method, facts));
    }
  }
  place.replaceChildren(
    ...[...groups].flatMap(([tag, shown]) => [element("h2", { textContent: tag }), ...shown]),
  );
}

draw().catch((error) => { document.getElementById("operations").textContent = String(error); });
