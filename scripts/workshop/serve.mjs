// Serves Workers under workerd, and answers on a small control port.
//
// Miniflare is what `wrangler dev` itself is built on: it starts workerd, keeps it alive and stores
// what Durable Objects store. This file gives it the modules that a deployment would have, and
// gives tests the levers that HTTP to the Worker cannot: evict an Object, list Objects, stop.
//
// Usage: node serve.mjs CONFIG, where CONFIG is a JSON file (its shape stands in `serving.py`). The
// first line on stdout is one JSON object, {ready, control, pid, workerd}. It runs until POST
// /dispose, SIGTERM, SIGINT, or the end of its stdin: whoever started it holds the other end, so it
// cannot outlive that process, however it ended.

import { readFileSync, readdirSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import path from "node:path";

const config = JSON.parse(readFileSync(process.argv[2], "utf8"));
const require = createRequire(path.join(config.nodeModules, "package.json"));
const { Miniflare, Log, LogLevel, convertV4MiniflareOptions } = require("miniflare");

// Miniflare restarts a workerd that died. When even the restart fails it only says so, and would
// stand there with nothing behind its port; ending lets the parent start over.
class WatchfulLog extends Log {
  error(message) {
    super.error(message);
    if (message?.code === "ERR_RUNTIME_FAILURE") process.exit(3);
  }
}

/** Every file under `folder` as a path relative to it, in a stable order. */
function filesUnder(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)))
    .sort();
}

/** Globs as wrangler reads them: `**` spans folders, `*` stays inside one, the rest is literal. */
function matcher(globs) {
  const expressions = globs.map((glob) => {
    const pattern = glob
      .split(/(\*\*\/|\*\*|\*)/)
      .map((part, index) =>
        index % 2 === 0
          ? part.replace(/[.+?^${}()|[\]\\]/g, "\\$&")
          : { "**/": "(?:.*/)?", "**": ".*", "*": "[^/]*" }[part],
      );
    return new RegExp(`^${pattern.join("")}$`);
  });
  return (file) => expressions.some((expression) => expression.test(file));
}

/** The modules of one Worker: the main one first, then its roots, then what is vendored. */
function modulesOf(worker) {
  const type = worker.main.endsWith(".py") ? "PythonModule" : "ESModule";
  const extension = path.extname(worker.main);
  const found = new Map();
  for (const root of worker.roots) {
    const wanted = matcher(root.globs ?? [`**/*${extension}`]);
    for (const file of filesUnder(root.folder)) {
      if (!file.endsWith(extension) || (file !== worker.main && !wanted(file))) continue;
      // The first root that has a path wins, so that a test can lay its own entry over ours.
      if (!found.has(file)) found.set(file, readFileSync(path.join(root.folder, file), "utf8"));
    }
  }
  if (!found.has(worker.main)) throw new Error(`no root contains ${worker.main}`);
  const main = { type, path: worker.main, contents: found.get(worker.main) };
  found.delete(worker.main);
  const others = [...found].map(([file, contents]) => ({ type, path: file, contents }));
  return [main, ...others, ...vendoredModulesOf(worker)];
}

/** Vendored packages are data to workerd, except the SDK's JavaScript, which Python imports. */
function vendoredModulesOf(worker) {
  if (!worker.vendored) return [];
  const excluded = matcher(worker.vendored.exclude ?? []);
  return filesUnder(worker.vendored.folder)
    .filter((file) => !excluded(file))
    .map((file) => {
      const contents = readFileSync(path.join(worker.vendored.folder, file));
      const name = `python_modules/${file}`;
      return file.startsWith("workers/") && /\.m?js$/.test(file)
        ? { type: "ESModule", path: name, contents: contents.toString("utf8") }
        : { type: "Data", path: name, contents: new Uint8Array(contents) };
    });
}

function miniflareWorker(worker) {
  return {
    name: worker.name,
    modulesRoot: "/",
    rootPath: "/",
    modules: modulesOf(worker),
    compatibilityDate: worker.compatibilityDate,
    compatibilityFlags: worker.compatibilityFlags,
    bindings: worker.bindings ?? {},
    serviceBindings: worker.serviceBindings ?? {},
    analyticsEngineDatasets: Object.fromEntries(
      Object.entries(worker.datasets ?? {}).map(([binding, dataset]) => [binding, { dataset }]),
    ),
    durableObjects: Object.fromEntries(
      Object.entries(worker.durableObjects ?? {}).map(([binding, className]) => [
        binding,
        { className, useSQLite: true },
      ]),
    ),
    // Requests reach the Worker itself. Miniflare's own entry Worker in front of it would cost as
    // much as a Python request does.
    unsafeDirectSockets: [{ host: config.host ?? "127.0.0.1", port: worker.port ?? 0 }],
  };
}

/** The pid of the workerd that Miniflare started: found, since no API tells it (Linux only). */
function workerdPid() {
  try {
    const children = readdirSync("/proc/self/task").flatMap(
      (thread) => readFileSync(`/proc/self/task/${thread}/children`, "utf8").match(/\d+/g) ?? [],
    );
    const isWorkerd = (pid) => readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("workerd");
    return Number(children.find(isWorkerd)) || null;
  } catch {
    return null;
  }
}

const miniflare = new Miniflare(
  convertV4MiniflareOptions({
    host: "127.0.0.1",
    port: 0,
    cf: false,
    logRequests: false,
    log: new WatchfulLog(LogLevel[config.logLevel ?? "WARN"]),
    handleStructuredLogs: ({ level, message }) => process.stderr.write(`${level}: ${message}\n`),
    verbose: config.verbose ?? false,
    unsafeObservability: config.observability ?? false,
    resourcePersistencePath: config.persist,
    isolatedResourcePersistencePath: config.persist,
    workers: config.workers.map(miniflareWorker),
  }),
);

let stopping = false;
async function stop(code = 0) {
  if (stopping) return;
  stopping = true;
  // A workerd that hangs must not keep this process: the launcher has it die with its parent.
  setTimeout(() => process.exit(code), 5000).unref();
  await miniflare.dispose().catch(() => {});
  process.exit(code);
}
process.on("SIGTERM", () => stop());
process.on("SIGINT", () => stop());
process.stdin.on("end", () => stop()).on("error", () => stop()).resume();

const main = config.workers[0].name;
const routes = {
  "GET /pid": () => ({ workerd: workerdPid() }),
  "GET /ids": (_, query) =>
    miniflare.listDurableObjectIds(query.get("class"), query.get("worker") ?? main),
  "POST /evict": async ({ class: className, name, worker = main, webSockets = "hibernate" }) => {
    try {
      await miniflare.unsafeEvictDurableObject(worker, className, { name, webSockets });
      return { evicted: true };
    } catch (error) {
      // It may have left memory by itself just before; that is what was asked for.
      if (!/not currently running/.test(error)) throw error;
      return { evicted: false };
    }
  },
  "POST /dispose": () => (setImmediate(stop), {}),
};

async function answer(request, response) {
  const url = new URL(request.url, "http://control");
  const route = routes[`${request.method} ${url.pathname}`];
  const send = (status, body) =>
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  if (!route) return send(404, { error: `there is only ${Object.keys(routes).join(", ")}` });
  try {
    const chunks = await request.toArray();
    const body = chunks.length ? JSON.parse(Buffer.concat(chunks).toString("utf8")) : {};
    send(200, await route(body, url.searchParams));
  } catch (error) {
    send(500, { error: String(error) });
  }
}

try {
  await miniflare.ready;
  const urls = {};
  for (const { name } of config.workers) {
    urls[name] = (await miniflare.unsafeGetDirectURL(name)).origin;
  }
  const control = createServer(answer);
  await new Promise((resolve) => control.listen(0, "127.0.0.1", resolve));
  console.log(
    JSON.stringify({
      ready: urls[main],
      control: `http://127.0.0.1:${control.address().port}`,
      urls,
      pid: process.pid,
      workerd: workerdPid(),
    }),
  );
} catch (error) {
  // The parent reads the reason from stderr; a stack of Miniflare's own frames says nothing more.
  process.stderr.write(`error: ${error?.message ?? error}\n`);
  await stop(1);
}
