import { describe, expect, it } from "vitest";
import {
  addPage,
  emptyList,
  everyday,
  highlight,
  type Listed,
  mergePage,
  neighbour,
  readTags,
  update,
} from "./list";

function chat(id: string, updated_at: string): Listed {
  const base = {
    channel: "websocket",
    user: null,
    title: "",
    preview: "",
    state: "active",
    tags: [],
  };
  return { ...base, key: `websocket:${id}`, chat_id: id, updated_at };
}

describe("the list of chats", () => {
  const list = addPage(emptyList, [chat("a", "3"), chat("b", "2")], "next", true);

  it("moves a chat to the top when it changes", () => {
    const next = update(list, { type: "session", chat_id: "b", updated_at: "4", title: "B" });

    expect(next.chats.map((one) => one.chat_id)).toEqual(["b", "a"]);
    expect(next.chats[0]?.title).toBe("B");
  });

  it("takes in a new chat and lets go of a deleted one", () => {
    const added = update(list, { type: "session", chat_id: "c", updated_at: "9" });
    const removed = update(added, { type: "session", chat_id: "a", state: "deleted" });

    expect(removed.chats.map((one) => one.chat_id)).toEqual(["c", "b"]);
  });

  it("adds a page without doubling what moved meanwhile", () => {
    const next = addPage(list, [chat("b", "2"), chat("d", "1")], null, false);

    expect(next.chats.map((one) => one.chat_id)).toEqual(["a", "b", "d"]);
    expect(next.cursor).toBeNull();
  });

  it("keeps what came while the first page was on its way and the page does not know of", () => {
    const page = { sessions: [chat("a", "3")], next_cursor: null };
    const came = { type: "session" as const, chat_id: "new", updated_at: "5", preview: "hello" };
    const shown = update(list, came);

    const next = mergePage(shown, page, true, [came]);

    expect(next.chats.map((one) => one.chat_id)).toEqual(["new", "a"]);
  });

  it("does not bring back what the page left out, nor an older state of what it has", () => {
    const page = { sessions: [{ ...chat("a", "9"), title: "newer" }], next_cursor: null };
    const frames = [
      { type: "session" as const, chat_id: "a", updated_at: "4", title: "older" },
      { type: "session" as const, chat_id: "b", state: "deleted" },
    ];

    const next = mergePage(list, page, true, frames);

    expect(next.chats.map((one) => [one.chat_id, one.title])).toEqual([["a", "newer"]]);
  });

  it("lets go of a chat that its filter does not ask for, and takes it in where it does", () => {
    const frame = { type: "session" as const, chat_id: "a", state: "archived", updated_at: "5" };
    const archive = { ...emptyList, filter: { ...everyday, state: "archived" as const } };

    expect(update(list, frame).chats.map((one) => one.chat_id)).toEqual(["b"]);
    expect(update(archive, frame).chats.map((one) => one.chat_id)).toEqual(["a"]);
  });

  it("asks for a channel and for a tag", () => {
    const slack = { ...emptyList, filter: { ...everyday, channel: "slack", tag: "late" } };
    const frame = { type: "session" as const, key: "slack:C1", updated_at: "5" };

    expect(update(slack, { ...frame, tags: ["late"] }).chats).toHaveLength(1);
    expect(update(slack, frame).chats).toEqual([]);
    expect(update(slack, { ...frame, key: "other:1", tags: ["late"] }).chats).toEqual([]);
  });

  it("stays in order whatever changes, and holds each chat once", () => {
    const frames = Array.from({ length: 200 }, (_, at) => ({
      type: "session" as const,
      chat_id: `${(at * 7) % 40}`,
      updated_at: `${100 + ((at * 31) % 97)}`,
    }));
    const { chats } = frames.reduce(update, emptyList);

    expect(new Set(chats.map((one) => one.key)).size).toBe(chats.length);
    expect(chats.map((one) => one.updated_at)).toEqual(
      chats
        .map((one) => one.updated_at)
        .sort()
        .reverse(),
    );
  });

  it("knows what is above and below the open chat", () => {
    expect(neighbour(list.chats, "websocket:a", 1)).toBe("websocket:b");
    expect(neighbour(list.chats, "websocket:b", 1)).toBeNull();
    expect(neighbour(list.chats, null, 1)).toBe("websocket:a");
  });
});

describe("tags as they are written", () => {
  it("are separated by commas, each once", () => {
    expect(readTags(" red,  deep   blue ,, red")).toEqual(["red", "deep blue"]);
  });
});

describe("what a search found", () => {
  const hits = (text: string, query: string) =>
    highlight(text, query)
      .filter((part) => part.hit)
      .map((part) => part.text);

  it("is marked wherever it stands, large or small", () => {
    expect(hits("Key, keys and KEYRING", "key")).toEqual(["Key", "key", "KEY"]);
  });

  it("is looked for as it was written, whatever the signs", () => {
    expect(hits("a+b (c) [d] \\e. $5-6 /x", "+ (c) [d] \\e $5-6 /x")).toEqual([
      "+",
      "(c)",
      "[d]",
      "\\e",
      "$5-6",
      "/x",
    ]);
  });

  it("leaves the text as it was", () => {
    const text = "rotate the signing keys";

    expect(
      highlight(text, "the key the")
        .map((part) => part.text)
        .join(""),
    ).toBe(text);
    expect(highlight(text, "  ")).toEqual([{ text, hit: false }]);
  });
});
