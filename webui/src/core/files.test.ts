import { describe, expect, it } from "vitest";
import { admit, expired, sendable, stored } from "./files";

const limits = { upload: 100, media_per_message: 2 };
const file = (name: string, size = 1) => ({ name, size });
const media = { id: "m", name: "a.png", mime: "image/png", size: 1, url: "/m?exp=10&sig=x" };

describe("files of a message", () => {
  it("are taken in order up to the number the gateway allows", () => {
    const { taken, refused } = admit(1, [file("a"), file("b"), file("c")], limits);

    expect(taken.map((one) => one.name)).toEqual(["a"]);
    expect(refused).toEqual([{ reason: "too_many", most: 2, left: 2 }]);
  });

  it("that are too large leave their place to others", () => {
    const { taken, refused } = admit(0, [file("big", 101), file("a"), file("b")], limits);

    expect(taken.map((one) => one.name)).toEqual(["a", "b"]);
    expect(refused).toEqual([{ reason: "too_large", name: "big", size: 101, most: 100 }]);
  });

  it("go out only when all of them are on the gateway", () => {
    const going = { ...stored(media), state: "uploading" as const, media: null };

    expect(sendable([])).toEqual([]);
    expect(sendable([stored(media)])).toEqual([media]);
    expect(sendable([stored(media), going])).toBeNull();
  });

  it("have links that run out", () => {
    expect(expired(media.url, 9_999)).toBe(false);
    expect(expired(media.url, 10_000)).toBe(true);
    expect(expired("blob:x", 10_000)).toBe(false);
  });
});
