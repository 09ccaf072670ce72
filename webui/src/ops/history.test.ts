import { describe, expect, it } from "vitest";
import { KEPT, latency, type Moment, moment, path, remember, throughput } from "./history";
import { parse } from "./metrics";

function at(seconds: number, received: number, slow = 0): Moment {
  const text = `parley_messages_received_total ${received}
parley_turn_seconds_bucket{le="1"} ${received - slow}
parley_turn_seconds_bucket{le="10"} ${received}
parley_turn_seconds_bucket{le="+Inf"} ${received}`;
  return moment(parse(text), seconds * 1000);
}

describe("the last minutes", () => {
  it("know how many messages come in per minute", () => {
    expect(throughput([at(0, 10), at(30, 20), at(60, 40)])).toEqual([null, 20, 30]);
  });

  it("look back one minute and no further", () => {
    expect(throughput([at(0, 0), at(60, 600), at(120, 600)]).at(-1)).toBe(0);
  });

  it("start anew when the gateway did", () => {
    expect(throughput([at(0, 500), at(60, 6)])).toEqual([null, 6]);
  });

  it("have no latency where nothing was answered", () => {
    const found = latency([at(0, 4), at(2, 4), at(4, 8)], "turns", 0.5);

    expect(found.slice(0, 2)).toEqual([null, null]);
    expect(found[2]).toBeCloseTo(500);
  });

  it("are forgotten in time", () => {
    const long = Array.from({ length: KEPT + 5 }, (_, second) => at(second, 0));

    expect(long.reduce(remember, [] as Moment[])).toHaveLength(KEPT);
  });

  it("are drawn with a gap where a value is missing", () => {
    expect(path([1, null, 2, 2], 2).replace(/[\d. ]/g, "")).toBe("MML");
    expect(path([], 0)).toBe("");
  });
});
