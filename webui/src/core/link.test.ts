import fc from "fast-check";
import { describe, expect, it } from "vitest";
import type { ClientFrame } from "./frames";
import { type Effect, type Event, initial, type Link, step } from "./link";
import { FakeServer } from "./server.fake";

const CHAT = "one";
const KEY = "websocket:one";

/** A page and a gateway with a network between them that can be cut at any moment. */
class World {
  link: Link = initial();
  server = new FakeServer(CHAT);
  now = 1_000;
  wire: ClientFrame[] = [];
  connected = false;
  wakeAt = 0;
  sent: ClientFrame[] = [];

  do(event: Event): Effect[] {
    const [link, effects] = step(this.link, event, this.now);
    this.link = link;
    for (const effect of effects) {
      if (effect.type === "transmit" && this.connected) {
        this.wire.push(effect.frame);
        this.sent.push(effect.frame);
      }
      if (effect.type === "connect") this.connect();
      if (effect.type === "disconnect") this.cut();
      if (effect.type === "wake") this.wakeAt = effect.at;
    }
    return effects;
  }

  private connect(): void {
    this.connected = true;
    this.wire = [];
    this.server.connect();
    this.do({ type: "opened" });
  }

  cut(code = 1006): void {
    if (!this.connected) return;
    this.connected = false;
    this.wire = [];
    this.server.frames = [];
    this.do({ type: "closed", code, jitter: 0.5 });
  }

  /** One frame each way, if there is one. */
  move(): boolean {
    const up = this.wire.shift();
    if (up) this.server.receive(up);
    const down = this.connected ? this.server.frames.shift() : undefined;
    if (down) this.do({ type: "frame", frame: down });
    return up !== undefined || down !== undefined;
  }

  pass(milliseconds: number): void {
    this.now += milliseconds;
    this.do({ type: "tick" });
  }

  settle(): void {
    for (let round = 0; round < 100; round += 1) {
      while (this.move()) {
        // until nothing moves
      }
      if (this.link.phase === "open" && this.link.outbox.every((one) => one.state === "failed"))
        return;
      this.pass(20_000);
    }
  }

  submit(id: string, text: string): void {
    const at = "2030-01-01T00:00:00Z";
    this.do({ type: "submit", out: { id, key: KEY, kind: "send", text, at } });
  }

  get chat() {
    return this.link.chats[KEY];
  }
}

function begun(): World {
  const world = new World();
  world.do({ type: "watch", key: KEY, fresh: true });
  world.do({ type: "start" });
  return world;
}

const action = fc.oneof(
  { weight: 3, arbitrary: fc.constant("move" as const) },
  {
    weight: 1,
    arbitrary: fc.constantFrom("begin" as const, "think" as const, "tool" as const, "end" as const),
  },
  { weight: 2, arbitrary: fc.constant("say" as const) },
  { weight: 1, arbitrary: fc.constant("send" as const) },
  { weight: 1, arbitrary: fc.constant("cut" as const) },
  { weight: 1, arbitrary: fc.constant("pass" as const) },
);
type Action = typeof action extends fc.Arbitrary<infer T> ? T : never;

function perform(world: World, one: Action, at: number): void {
  if (one === "move") world.move();
  if (one === "begin") world.server.begin();
  if (one === "say") world.server.grow("delta", `w${at} `);
  if (one === "think") world.server.grow("reasoning", `t${at} `);
  if (one === "tool") world.server.callTool(`tool-${at}`);
  if (one === "end") world.server.end();
  if (one === "send") world.submit(`id-${at}`, `text ${at}`);
  if (one === "cut") world.cut();
  if (one === "pass") world.pass(20_000);
}

describe("resuming", () => {
  it("shows after any cuts what the log and the running turn are", () => {
    fc.assert(
      fc.property(fc.array(action, { maxLength: 120 }), (actions) => {
        const world = begun();
        actions.forEach((one, at) => {
          perform(world, one, at);
        });
        world.settle();
        const fresh = begun();
        fresh.server = world.server;
        fresh.do({ type: "forget", key: KEY });
        fresh.cut();
        fresh.do({ type: "watch", key: KEY, fresh: false });
        fresh.settle();

        expect(world.chat?.rows).toEqual(world.server.rows);
        expect(world.chat?.turn ?? null).toEqual(fresh.chat?.turn ?? null);
        expect(world.link.outbox).toEqual([]);
      }),
      { numRuns: 400 },
    );
  });

  it("stores each text once and in the order it was written, whatever is cut or refused", () => {
    const codes = fc.constantFrom("rate_limited", "queue_full", "busy", "storage_unavailable");
    fc.assert(
      fc.property(
        fc.array(action, { maxLength: 80 }),
        fc.array(fc.record({ code: codes, retry_after: fc.integer({ min: 1, max: 60 }) }), {
          maxLength: 5,
        }),
        (actions, refusals) => {
          const world = begun();
          world.server.refusals = [...refusals];
          actions.forEach((one, at) => {
            perform(world, one, at);
          });
          world.settle();

          const written = actions.flatMap((one, at) => (one === "send" ? [`id-${at}`] : []));
          const stored = world.server.rows
            .filter((row) => row.role === "user")
            .map((row) => row.id);
          expect(stored).toEqual(written);
        },
      ),
      { numRuns: 300 },
    );
  });

  it("asks with the highest number seen and the log it belongs to", () => {
    const world = begun();
    world.submit("a", "hello");
    world.settle();
    world.cut();
    world.settle();

    expect(world.sent.filter((frame) => frame.type === "attach").at(-1)).toEqual({
      type: "attach",
      chat_id: CHAT,
      since: 1,
      log: "log-1",
    });
  });

  it("asks again when a piece of the running answer is missing", () => {
    const world = begun();
    world.submit("a", "hello");
    world.settle();
    world.server.begin();
    world.server.grow("delta", "one ");
    world.server.grow("delta", "two ");
    world.server.frames.splice(1, 1);
    world.server.grow("delta", "three");
    world.settle();

    expect(world.chat?.turn?.text).toBe("one two three");
    expect(world.chat?.holed).toBe(false);
  });

  it("drops its copy of a log that is no more", () => {
    const world = begun();
    world.submit("a", "hello");
    world.settle();
    world.cut();
    world.server.log = "log-2";
    world.server.rows = [
      { seq: 1, role: "user", content: "other", timestamp: "2030-01-01T00:00:00Z" },
    ];
    world.settle();

    expect(world.chat?.rows.map((row) => row.content)).toEqual(["other"]);
    expect(world.server.rows.length).toBe(1);
  });

  it("sends again what the server has lost of the same log", () => {
    const world = begun();
    for (const id of ["a", "b"]) world.submit(id, `text ${id}`);
    world.settle();
    world.cut();
    world.server.rows = world.server.rows.slice(0, 1);
    world.settle();

    expect(world.server.rows.map((row) => row.id)).toEqual(["a", "b"]);
  });
});

describe("the outbox", () => {
  it("keeps what is written before there is a connection", () => {
    const world = new World();
    world.do({ type: "watch", key: KEY, fresh: true });
    world.submit("a", "early");

    expect(world.link.outbox[0]?.state).toBe("queued");
    world.do({ type: "start" });
    world.settle();
    expect(world.server.rows[0]?.content).toBe("early");
  });

  it("shows what cannot be stored as failed, and sends it again only when asked", () => {
    const world = begun();
    world.server.refusals = [{ code: "too_large" }];
    world.submit("a", "long");
    world.settle();

    expect(world.link.outbox[0]).toMatchObject({ state: "failed", error: "no" });
    world.do({ type: "retry", id: "a" });
    world.settle();
    expect(world.server.rows.map((row) => row.id)).toEqual(["a"]);
  });

  it("waits as long as the server asks", () => {
    const world = begun();
    while (world.move()) {
      // until connected
    }
    world.server.refusals = [{ code: "rate_limited", retry_after: 7 }];
    world.submit("a", "quick");
    while (world.move()) {
      // until refused
    }
    world.pass(6_000);
    expect(world.link.outbox[0]?.state).toBe("queued");
    world.pass(1_500);
    expect(world.link.outbox[0]?.state).toBe("sent");
  });

  it("takes over what another tab has left, without doubling it", () => {
    const world = begun();
    world.submit("a", "mine");
    const left = { ...world.link.outbox[0] } as Link["outbox"][0];
    world.do({ type: "adopt", outbox: [left, { ...left, id: "b", state: "sent" }] });
    world.settle();

    expect(world.server.rows.map((row) => row.id).sort()).toEqual(["a", "b"]);
  });

  it("sends the files of a message by their ids, also after a reload", () => {
    const world = new World();
    const file = { id: "f", name: "a.png", mime: "image/png", size: 1, url: "/m/f" };
    const out = { id: "a", key: KEY, kind: "send" as const, text: "", at: "2030-01-01T00:00:00Z" };
    world.do({ type: "submit", out: { ...out, media: [file] } });
    const kept = JSON.parse(JSON.stringify(world.link.outbox)) as Link["outbox"];
    const next = new World();
    next.do({ type: "adopt", outbox: kept });
    next.do({ type: "start" });
    next.settle();

    expect(next.sent.find((frame) => frame.type === "send")).toMatchObject({ media: ["f"] });
  });

  it("never sends in another user's name", () => {
    const world = begun();
    world.do({
      type: "adopt",
      outbox: [
        {
          id: "x",
          key: KEY,
          kind: "send",
          text: "secret",
          at: "2030-01-01T00:00:00Z",
          user: "bob",
          state: "queued",
          notBefore: 0,
          tries: 0,
        },
      ],
    });
    while (world.move()) {
      // until nothing moves
    }

    expect(world.sent.some((frame) => frame.type === "send")).toBe(false);
  });
});

describe("the connection", () => {
  it("asks for a login after 4401 and does not try again by itself", () => {
    const world = begun();
    world.cut(4401);
    world.pass(600_000);

    expect(world.link.phase).toBe("refused");
    expect(world.connected).toBe(false);
  });

  it("waits longer after each failure, and not at all once the network is back", () => {
    const world = begun();
    const pauses: number[] = [];
    for (let at = 0; at < 8; at += 1) {
      world.cut(1001);
      pauses.push(world.link.retryAt - world.now);
      world.now = world.link.retryAt;
      world.do({ type: "tick" });
    }
    world.cut();
    world.do({ type: "online" });

    expect(pauses).toEqual([...pauses].sort((a, b) => a - b));
    expect(Math.max(...pauses)).toBeLessThanOrEqual(15_000);
    expect(world.connected).toBe(true);
  });

  it("waits to be started: until then nothing is known of a login", () => {
    let link = initial();
    const asked: Effect[] = [];
    for (const event of [
      { type: "watch", key: KEY, fresh: true },
      { type: "adopt", outbox: [] },
      { type: "online" },
      { type: "visible" },
      { type: "tick" },
    ] satisfies Event[]) {
      const [next, effects] = step(link, event, 1_000_000);
      link = next;
      asked.push(...effects);
    }

    expect(asked).toEqual([]);
    expect(link.phase).toBe("idle");
  });

  it("asks to be woken in time to give up a handshake, and then tries again", () => {
    const [connecting, asked] = step(initial(), { type: "start" }, 1_000);
    const wake = asked.find((effect) => effect.type === "wake");
    const at = wake?.type === "wake" ? wake.at : 0;
    const [late, dropped] = step(connecting, { type: "tick" }, at);
    const [waiting] = step(late, { type: "closed", code: 1006, jitter: 0 }, at);
    const [, again] = step(waiting, { type: "tick" }, waiting.retryAt);

    expect(at).toBe(9_000);
    expect(dropped[0]).toEqual({ type: "disconnect" });
    expect(again[0]).toEqual({ type: "connect" });
  });

  it("gives up a handshake that nobody answers", () => {
    const [connecting] = step(initial(), { type: "start" }, 1_000);
    const [, effects] = step(connecting, { type: "tick" }, 20_000);

    expect(connecting.phase).toBe("connecting");
    expect(effects[0]).toEqual({ type: "disconnect" });
  });

  it("gives up a connection on which nothing comes back", () => {
    const world = begun();
    world.settle();
    world.pass(25_000);
    expect(world.sent.at(-1)).toEqual({ type: "ping" });
    world.wire = [];
    world.pass(10_000);

    expect(world.link.phase).toBe("waiting");
  });
});
