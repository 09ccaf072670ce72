import { describe, expect, it } from "vitest";
import { emptyChat, fold, prepend } from "./chat";
import type { ChatFrame, Row } from "./frames";

const row: Row = {
  seq: 3,
  role: "user",
  content: "hi",
  timestamp: "2030-01-01T00:00:00Z",
  id: "a",
};
const frames: ChatFrame[] = [
  { type: "message", ...row },
  { type: "turn_start", turn: "t", started_at: "", n: 0, text: "", reasoning: "", tools: [] },
  { type: "reasoning", turn: "t", n: 0, text: "hm" },
  { type: "delta", turn: "t", n: 1, text: "yes" },
  { type: "tool", turn: "t", n: 2, id: "1", name: "look", phase: "start", summary: "" },
  { type: "message", ...row, seq: 4, role: "assistant", turn: "t", outcome: "answered" },
  { type: "turn_end", turn: "t", seq: 4, outcome: "ok" },
];

describe("a chat", () => {
  it("is not changed by a frame it has seen", () => {
    let chat = emptyChat("websocket:one");
    for (const frame of frames) {
      chat = fold(chat, frame);

      expect(fold(chat, frame)).toBe(chat);
    }
    expect(chat.rows.map((one) => one.seq)).toEqual([3, 4]);
    expect(chat.turn).toBeNull();
  });

  it("takes older rows in front and nothing twice", () => {
    const chat = fold(emptyChat("websocket:one"), { type: "message", ...row });
    const more = prepend(chat, [{ ...row, seq: 1 }, { ...row, seq: 2 }, row], false);

    expect(more.rows.map((one) => one.seq)).toEqual([1, 2, 3]);
    expect(more.cursor).toBe(3);
  });

  it("lets go of rows that would leave a hole", () => {
    const chat = fold(emptyChat("websocket:one"), { type: "message", ...row });
    const session = { key: "websocket:one", title: "", state: "active" };
    const attached = { log: "l", last_seq: 90, first_seq: 50, gap: true, reset: false, session };
    const next = fold(chat, { type: "attached", ...attached });

    expect(next.rows).toEqual([]);
    expect(next.older).toBe(true);
  });
});
