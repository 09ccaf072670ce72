import { describe, expect, it } from "vitest";
import { ask, begin, type Deletion, GRACE, isOld, postpone, ready, takeBack } from "./deletions";

const CHAT = { key: "websocket:a", title: "A", updated_at: "1" };
const asked: Deletion[] = ask([], CHAT, "ada", 1_000);

describe("deleting a chat", () => {
  it("waits before it is carried out", () => {
    expect(ready(asked, "ada", 1_000)).toEqual([]);
    expect(ready(asked, "ada", 1_000 + GRACE)).toEqual(asked);
  });

  it("can be taken back until it is on its way", () => {
    expect(takeBack(asked, CHAT.key)).toEqual([]);
    expect(takeBack(begin(asked, CHAT.key), CHAT.key)).toHaveLength(1);
  });

  it("is never carried out in another user's name", () => {
    expect(ready(asked, "bob", 1_000_000)).toEqual([]);
  });

  it("is tried again after a failure, and can be taken back until then", () => {
    const later = postpone(begin(asked, CHAT.key), CHAT.key, 9_000);

    expect(ready(later, "ada", 9_000)).toEqual([]);
    expect(takeBack(later, CHAT.key)).toEqual([]);
  });

  it("is asked for once, however often", () => {
    expect(ask(asked, CHAT, "ada", 2_000)).toHaveLength(1);
  });

  it("grows old when the browser was closed", () => {
    expect(isOld(asked[0] as Deletion, 1_000 + GRACE)).toBe(false);
    expect(isOld(asked[0] as Deletion, 1_000_000)).toBe(true);
  });
});
