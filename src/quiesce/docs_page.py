"""The page that shows a deployment's API: one document of HTML, which reads the description and nothing else.

It holds its styles and its script itself, and builds text nodes only, so that nothing in a description is ever taken
for markup.
"""

STYLE = """
:root { color-scheme: light dark;
  --ground: #fbfaf8; --panel: #ffffff; --line: #e3dfd8; --ink: #22201d; --soft: #6b665e; --accent: #8a4b1f;
  --get: #1d6a56; --post: #8a4b1f; --good: #1d6a56; --bad: #a3312a; --code: #f3f0ea; }
@media (prefers-color-scheme: dark) { :root {
  --ground: #1a1815; --panel: #22201c; --line: #36322c; --ink: #ece7df; --soft: #a29a8e; --accent: #e0a070;
  --get: #6fc6ab; --post: #e0a070; --good: #6fc6ab; --bad: #ef8d84; --code: #2a2620; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
code, pre, .path { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: .875em; }
code { background: var(--code); border-radius: 4px; padding: .1em .35em; overflow-wrap: anywhere; }
pre { background: var(--code); border-radius: 8px; padding: .8rem 1rem; margin: .5rem 0 1rem; overflow-x: auto; }
pre code { background: none; padding: 0; }
a { color: var(--accent); }
.frame { display: grid; grid-template-columns: 17rem minmax(0, 1fr); max-width: 76rem; margin: 0 auto; }
nav { position: sticky; top: 0; align-self: start; max-height: 100vh; overflow-y: auto;
  padding: 2rem 1rem 2rem 1.5rem; }
nav strong { display: block; font-size: 1.25rem; margin-bottom: .75rem; }
nav h2 { font-size: .75rem; letter-spacing: .06em; text-transform: uppercase; color: var(--soft);
  margin: 1.1rem 0 .25rem; }
nav a { display: block; padding: .15rem 0; color: inherit; text-decoration: none; font-size: .9rem; }
nav a:hover { color: var(--accent); }
main { padding: 2rem 1.5rem 6rem; }
h1 { font-size: 2rem; margin: 0 0 .5rem; }
main > h2 { font-size: 1.25rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: .8rem; letter-spacing: .04em; text-transform: uppercase; color: var(--soft); margin: 1.25rem 0 .35rem; }
.about { max-width: 46rem; }
.soft { color: var(--soft); }
details.call { background: var(--panel); border: 1px solid var(--line); border-radius: 10px; margin: .6rem 0; }
details.call > summary { cursor: pointer; list-style: none; padding: .7rem 1rem; display: flex; gap: .75rem;
  align-items: baseline; flex-wrap: wrap; }
details.call > summary::-webkit-details-marker { display: none; }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; border-radius: 6px; }
.method { font-weight: 700; font-size: .78rem; min-width: 3rem; }
.get { color: var(--get); } .post { color: var(--post); }
.path { overflow-wrap: anywhere; }
.what { color: var(--soft); font-size: .92rem; width: 100%; padding-left: 3.75rem; margin-top: -.35rem; }
.rows.answers { grid-template-columns: 3rem minmax(0, 1fr); }
.inside { border-top: 1px solid var(--line); padding: .25rem 1rem 1rem; }
.rows { display: grid; grid-template-columns: minmax(9rem, max-content) minmax(0, 1fr); gap: .4rem 1.25rem; }
.rows > div { min-width: 0; }
.status { font-weight: 700; } .good { color: var(--good); } .bad { color: var(--bad); }
.needed { color: var(--bad); font-size: .75rem; margin-left: .4rem; }
.fields { border-left: 2px solid var(--line); margin: .35rem 0 .35rem .1rem; padding-left: .9rem; }
.fields .rows { grid-template-columns: minmax(8rem, max-content) minmax(0, 1fr); font-size: .92rem; }
details.shape > summary { cursor: pointer; color: var(--accent); font-size: .92rem; }
.type { color: var(--soft); font-size: .85rem; }
p { margin: .4rem 0; }
#trouble { color: var(--bad); }
@media (max-width: 50rem) { .frame { display: block; } nav { position: static; max-height: none; padding-bottom: 0; }
  nav .calls { display: none; } main { padding-top: 1rem; } .what { padding-left: 0; margin-top: 0; }
  .rows:not(.answers), .fields .rows { grid-template-columns: 1fr; gap: .1rem; } .rows:not(.answers) > div:nth-child(even) { margin-bottom: .6rem; } }
"""

SCRIPT = r"""
"use strict";
const made = (name, traits, ...inside) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(traits || {})) node.setAttribute(key, value);
  node.append(...inside.flat().filter((each) => each !== null && each !== undefined));
  return node;
};
// Text with `code` in it.
const prose = (text) => String(text || "").split("\n\n").filter(Boolean).map((paragraph) =>
  made("p", {}, paragraph.split("`").map((part, place) => place % 2 ? made("code", {}, part) : part)));
const inline = (text) => String(text || "").split("`").map((part, place) => place % 2 ? made("code", {}, part) : part);

let api;
const found = (schema) => {
  if (!schema || !schema.$ref) return schema || {};
  return api.components.schemas[schema.$ref.split("/").pop()] || {};
};
const named = (schema) => schema && schema.$ref ? schema.$ref.split("/").pop() : null;
const among = (schema) => (found(schema).anyOf || []).filter((each) => each.type !== "null");
const typed = (schema) => {
  const it = found(schema);
  if (it.const !== undefined) return JSON.stringify(it.const);
  if (it.enum) return it.enum.map((each) => JSON.stringify(each)).join(" | ");
  if (it.anyOf) return it.anyOf.map(typed).join(" | ");
  if (it.allOf) return it.allOf.map(typed).join(" & ");
  if (it.type === "array") return "list of " + typed(it.items);
  if (it.properties) return named(schema) || it.title || "object";
  if (it.type === "object") return "object";
  return it.type || "any JSON";
};
const inner = (schema) => {
  const it = found(schema);
  if (it.properties) return schema;
  if (it.type === "array") return inner(it.items);
  for (const each of [...among(schema), ...(it.allOf || [])]) { const one = inner(each); if (one) return one; }
  return null;
};
const fields = (schema, seen) => {
  const it = found(schema), rows = made("div", { class: "rows" });
  for (const [name, field] of Object.entries(it.properties || {})) {
    const needed = (it.required || []).includes(name);
    const about = found(field).description || field.description;
    const more = inner(field), label = named(more) || "fields";
    rows.append(
      made("div", {}, made("code", {}, name), needed ? null : made("span", { class: "type" }, " optional")),
      made("div", {}, made("span", { class: "type" }, typed(field)),
        about && !more ? made("div", {}, inline(about)) : null,
        more && !seen.includes(label) ? shape(more, [...seen, label], label) : null));
  }
  return made("div", { class: "fields" }, prose(it.description), rows);
};
const shape = (schema, seen, label) => {
  const box = made("details", { class: "shape" }, made("summary", {}, label));
  box.addEventListener("toggle", () => { if (box.open && box.childNodes.length === 1) box.append(fields(schema, seen)); });
  return box;
};
const block = (text) => made("pre", { tabindex: "0" }, made("code", {}, text));
const curl = (method, path, call) => {
  let url = path;
  for (const each of call.parameters) if (each.in === "path") url = url.replace("{" + each.name + "}", each.example);
  const lines = ["curl" + (method === "post" ? " -X POST" : "") + " " + location.origin + url];
  if (call.security.length) lines.push("-H 'Authorization: Bearer '\"$QUIESCE_TOKEN\"");
  for (const each of call.parameters) {
    if (each.in === "header" && each.required) lines.push("-H '" + each.name + ": " + each.schema.examples[0] + "'");
  }
  const body = call.requestBody && call.requestBody.content["application/json"].example;
  if (body) lines.push("-H 'Content-Type: application/json'", "-d '" + JSON.stringify(body) + "'");
  return lines.join(" \\\n  ");
};
const answers = (call) => {
  const rows = made("div", { class: "rows answers" });
  for (const [status, answer] of Object.entries(call.responses)) {
    const [media, content] = Object.entries(answer.content || {})[0] || [];
    const schema = content && content.schema, model = schema && inner(schema);
    const isGood = Number(status) < 400;
    rows.append(
      made("div", {}, made("span", { class: "status " + (isGood ? "good" : "bad") }, status)),
      made("div", {}, made("div", {}, inline(answer.description)),
        answer.headers ? made("div", { class: "type" }, "headers: ", Object.keys(answer.headers).join(", ")) : null,
        isGood && model ? shape(model, [named(model)], named(model) || "document") : null,
        isGood && media && media !== "application/json" ? made("div", { class: "type" }, media) : null));
  }
  return rows;
};
const parameters = (call) => {
  const rows = made("div", { class: "rows" });
  for (const each of call.parameters) {
    rows.append(
      made("div", {}, made("code", {}, each.name), each.required ? made("span", { class: "needed" }, "required") : null),
      made("div", {}, inline(each.description), made("div", { class: "type" }, "in the " + each.in + ", ", typed(each.schema))));
  }
  return rows;
};
const operation = (method, path, call) => {
  const box = made("details", { class: "call", id: call.operationId }, made("summary", {},
    made("span", { class: "method " + method }, method.toUpperCase()),
    made("span", { class: "path" }, path.split(/(?=\/)/).flatMap((part) => [part, made("wbr")])), made("span", { class: "what" }, call.summary)));
  const open = () => {
    if (box.childNodes.length > 1) return;
    const body = call.requestBody && call.requestBody.content["application/json"];
    const inside = made("div", { class: "inside" }, prose(call.description));
    if (call.parameters.length) inside.append(made("h3", {}, "Asks for"), parameters(call));
    if (body) inside.append(made("h3", {}, "Body"), fields(body.schema, []));
    inside.append(made("h3", {}, "For example"), block(curl(method, path, call)), made("h3", {}, "Answers"), answers(call));
    box.append(inside);
  };
  box.addEventListener("toggle", open);
  return box;
};
const shown = () => {
  const box = document.getElementById(location.hash.slice(1));
  if (box && box.tagName === "DETAILS") { box.open = true; box.scrollIntoView(); }
};
const start = async () => {
  const answer = await fetch("openapi.json");
  if (!answer.ok) throw new Error("the description was answered with " + answer.status);
  api = await answer.json();
  document.getElementById("list").replaceChildren();
  const about = document.getElementById("about"), list = document.getElementById("list");
  const contents = document.getElementById("contents");
  about.append(...prose(api.info.description));
  for (const { name } of api.tags) {
    list.append(made("h2", {}, name));
    const links = made("div", { class: "calls" }, made("h2", {}, name));
    for (const [path, methods] of Object.entries(api.paths)) for (const [method, call] of Object.entries(methods)) {
      if (!call.tags.includes(name)) continue;
      list.append(operation(method, path, call));
      links.append(made("a", { href: "#" + call.operationId }, call.summary));
    }
    contents.append(links);
  }
  addEventListener("hashchange", shown);
  shown();
};
start().catch((error) => { document.getElementById("trouble").textContent = String(error.message || error); });
"""

PAGE = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Quiesce API</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body>
<div class="frame">
<nav aria-label="Calls"><strong>Quiesce</strong><div id="contents"></div></nav>
<main>
<h1>The API</h1>
<div id="about" class="about"></div>
<p class="soft">For programs: <a href="openapi.json">openapi.json</a></p>
<p id="trouble" role="alert"></p>
<div id="list"><p class="soft">Reading the description…</p></div>
<noscript><p>This page is made from <a href="openapi.json">openapi.json</a> by a script.</p></noscript>
</main>
</div>
<script>{SCRIPT}</script>
</body>
</html>
"""
