// The minimal JavaScript Object: minimal_entry.py, act for act, in the platform's first language.
//
// What it does and why it is comparable stands there. It shows how much of a time is Python's own: the platform's
// fixed price of a Python request and of a Python await. No budget hangs on it.

import { DurableObject } from "cloudflare:workers";

const SCHEMA = `
  CREATE TABLE IF NOT EXISTS submissions (
    sequence INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    input TEXT,
    state TEXT NOT NULL,
    result TEXT
  ) STRICT;
  CREATE TABLE IF NOT EXISTS records (
    sequence INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL
  ) STRICT;
`;
const RECORD_KEY = "generation";
const WAIT_MS = 25_000;

const respond = (status, text) =>
  new Response(text, { status, headers: { "content-type": "application/json" } });

export class MinimalObject extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    this.storage = ctx.storage;
    this.sql = ctx.storage.sql;
    this.waiting = new Map();
    ctx.blockConcurrencyWhile(async () => this.sql.exec(SCHEMA));
  }

  async #transaction(step) {
    const value = await this.storage.transaction(async () => {
      await this.storage.getAlarm();
      return await step();
    });
    await this.storage.sync();
    return value;
  }

  #load() {
    return JSON.parse(this.storage.kv.get(RECORD_KEY) ?? '{"dirty":0,"processed":0}');
  }

  async admit(text) {
    const asked = JSON.parse(text);
    const acceptedAt = Date.now();
    const sequence = await this.#transaction(async () => {
      const record = this.#load();
      record.dirty += 1;
      this.storage.kv.put(RECORD_KEY, JSON.stringify(record));
      const row = this.sql
        .exec(
          "INSERT INTO submissions (id, input, state) VALUES (?, ?, 'ready') RETURNING sequence",
          asked.key,
          JSON.stringify(asked.input),
        )
        .one();
      await this.storage.setAlarm(acceptedAt + 1);
      return row.sequence;
    });
    return JSON.stringify({
      submission: asked.key,
      sequence,
      accepted_at: acceptedAt,
      settlement: null,
    });
  }

  async alarm() {
    const generation = await this.#transaction(() => this.#begin());
    for (;;) {
      const [head] = this.sql
        .exec(
          "SELECT sequence, id, input FROM submissions WHERE state = 'ready' ORDER BY sequence LIMIT 1",
        )
        .toArray();
      if (!head) break;
      this.storage.transactionSync(() => this.#claim(head));
      await this.storage.sync();
      const result = JSON.stringify(JSON.parse(head.input));
      this.storage.transactionSync(() => this.#settle(head, result));
      this.waiting.get(head.id)?.resolve();
      this.waiting.delete(head.id);
    }
    await this.#transaction(() => this.#finish(generation));
  }

  async #begin() {
    const record = this.#load();
    const counted = { ...record, failures: (record.failures ?? 0) + 1 };
    this.storage.kv.put(RECORD_KEY, JSON.stringify(counted));
    await this.storage.setAlarm(Date.now() + 50);
    return record.dirty;
  }

  #claim({ sequence, id, input }) {
    this.sql.exec(
      "INSERT INTO records (id, kind, payload) VALUES (?, 'input', ?)",
      `${id}/input`,
      input,
    );
    this.sql.exec(
      "UPDATE submissions SET state = 'running', input = NULL WHERE sequence = ?",
      sequence,
    );
  }

  #settle({ sequence, id }, result) {
    this.sql.exec(
      "INSERT INTO records (id, kind, payload) VALUES (?, 'settlement', ?)",
      `${id}/settlement`,
      result,
    );
    this.sql.exec(
      "UPDATE submissions SET state = 'settled', result = ? WHERE sequence = ?",
      result,
      sequence,
    );
  }

  async #finish(generation) {
    const record = { ...this.#load(), processed: generation, failures: 0 };
    this.storage.kv.put(RECORD_KEY, JSON.stringify(record));
    if (record.dirty > generation) await this.storage.setAlarm(Date.now() + 1);
    else await this.storage.deleteAlarm();
  }

  async settlement(submission) {
    let found = this.#result(submission);
    if (found === undefined) {
      if (!this.waiting.has(submission)) {
        this.waiting.set(submission, Promise.withResolvers());
      }
      const late = new Promise((_, reject) => setTimeout(reject, WAIT_MS));
      await Promise.race([this.waiting.get(submission).promise, late]);
      found = this.#result(submission);
    }
    return JSON.stringify({ submission, outcome: "completed", result: found });
  }

  #result(submission) {
    const [row] = this.sql
      .exec("SELECT result FROM submissions WHERE id = ? AND state = 'settled'", submission)
      .toArray();
    return row && JSON.parse(row.result);
  }
}

export default {
  async fetch(request, env) {
    const [, lane, submission] = new URL(request.url).pathname.split("/");
    if (!lane) return respond(200, "{}");
    const stub = env.LANES.getByName(lane);
    if (request.method === "POST") {
      const { input } = await request.json();
      const asked = { key: request.headers.get("idempotency-key"), input };
      return respond(202, await stub.admit(JSON.stringify(asked)));
    }
    return respond(200, await stub.settlement(submission));
  },
};
