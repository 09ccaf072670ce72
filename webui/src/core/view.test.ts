import { describe, expect, it } from "vitest";
import { emptyChat } from "./chat";
import type { Row } from "./frames";
import { type Answer, type Item, type Mine, stable, view } from "./view";

const TIME = "2030-01-01T12:00:00Z";

function user(seq: number, more: Partial<Row> = {}): Row {
  return {
    seq,
    role: "user",
    content: `question ${seq}`,
    timestamp: TIME,
    id: `id-${seq}`,
    ...more,
  };
}

function answer(seq: number, to: number[], more: Partial<Row> = {}): Row {
  const settles = Object.fromEntries(to.map((one) => [one, "answered"]));
  const turn = `turn-${seq}`;
  return {
    seq,
    role: "assistant",
    content: `answer ${seq}`,
    timestamp: TIME,
    turn,
    outcome: "answered",
    settles,
    ...more,
  };
}

function shown(rows: Row[], turn: Parameters<typeof view>[0]["turn"] = null): Item[] {
  return view({ ...emptyChat("websocket:one"), rows, turn }, []).filter(
    (item) => item.kind !== "day" && item.kind !== "progress",
  );
}

function texts(items: Item[]): string[] {
  return items.map((item) => (item as Mine | Answer).text);
}

const LIVE = { id: "live", startedAt: TIME, n: 1, text: "so far", reasoning: "", tools: [] };

describe("a thread", () => {
  it("puts each answer under what it answers, although the log has them in another order", () => {
    const items = shown([user(1), user(2), answer(3, [1]), answer(4, [2])]);

    expect(texts(items)).toEqual(["question 1", "answer 3", "question 2", "answer 4"]);
  });

  it("puts the running answer under the oldest open message", () => {
    const items = shown([user(1), answer(2, [1]), user(3), user(4)], LIVE);

    expect(texts(items)).toEqual(["question 1", "answer 2", "question 3", "so far", "question 4"]);
    expect((items[2] as Mine).delivery.state).toBe("answering");
  });

  it("hides what was edited away, with its answer and what came after", () => {
    const items = shown([
      user(1),
      answer(2, [1]),
      user(3),
      answer(4, [3]),
      user(5, { replaces: 1 }),
    ]);

    expect(texts(items)).toEqual(["question 5"]);
  });

  it("shows the steps of one turn as one answer with its tools", () => {
    const call = { id: "c1", function: { name: "look" } };
    const {
      outcome: _outcome,
      settles: _settles,
      ...open
    } = answer(2, [1], { turn: "t", tool_calls: [call] });
    const result: Row = {
      seq: 3,
      role: "tool",
      content: "found\nmore",
      timestamp: TIME,
      turn: "t",
      tool_call_id: "c1",
    };
    const items = shown([user(1), open, result, answer(4, [1], { turn: "t" })]);

    expect(texts(items)).toEqual(["question 1", "answer 2\n\nanswer 4"]);
    expect((items[1] as Answer).tools).toEqual([
      { id: "c1", name: "look", phase: "end", summary: "found" },
    ]);
  });

  it("keeps the key of an answer when it is finished", () => {
    const running = shown([user(1)], LIVE)[1];
    const done = shown([user(1), answer(2, [1], { turn: "live" })])[1];

    expect(running?.key).toBe(done?.key);
  });

  it("keeps the objects of what has not changed", () => {
    const before = shown([user(1), answer(2, [1])]);
    const after = stable(before, shown([user(1), answer(2, [1]), user(3)]));

    expect(after[0]).toBe(before[0]);
    expect(after[1]).toBe(before[1]);
  });

  it("calls a question edited only if its words have changed", () => {
    const again = shown([user(1), answer(2, [1]), user(3, { content: "question 1", replaces: 1 })]);
    const edited = shown([user(1), answer(2, [1]), user(3, { replaces: 1 })]);

    expect((again[0] as Mine).edited).toBe(false);
    expect((edited[0] as Mine).edited).toBe(true);
  });

  it("begins a day with what came by itself, and never inside an answer", () => {
    const late = { timestamp: "2030-01-03T12:00:00Z" };
    const { turn: _turn, settles: _settles, ...alone } = answer(4, []);
    const rows = [user(1), answer(2, [1], late), { ...alone, timestamp: "2030-01-05T12:00:00Z" }];
    const kinds = view({ ...emptyChat("websocket:one"), rows }, []).map((item) => item.kind);

    expect(kinds).toEqual(["day", "mine", "answer", "day", "answer"]);
  });

  it("leaves out files that are only names on another machine", () => {
    const file = { id: "f", name: "a", mime: "image/png", size: 1, url: "/m/f" };
    const media = ["/home/a.png", file] as unknown as Row["media"];
    const [mine] = shown([user(1, media ? { media } : {})]);

    expect((mine as Mine).media).toEqual([file]);
  });
});
