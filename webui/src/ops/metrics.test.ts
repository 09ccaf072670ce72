import { describe, expect, it } from "vitest";
import { conservation, histogram, parse, quantile, since, sum } from "./metrics";

const TEXT = `# HELP parley_messages_received_total Messages that came in.
# TYPE parley_messages_received_total counter
parley_messages_received_total{channel="websocket"} 7.0
parley_messages_received_total{channel="slack"} 3.0
parley_messages_outcome_total{channel="websocket",outcome="answered"} 6.0
parley_messages_outcome_total{channel="slack",outcome="failed"} 3.0
parley_messages_pending 1.0
parley_turn_seconds_bucket{le="0.5",outcome="ok"} 2.0
parley_turn_seconds_bucket{le="1.0",outcome="ok"} 4.0
parley_turn_seconds_bucket{le="+Inf",outcome="ok"} 4.0
parley_turn_seconds_bucket{le="0.5",outcome="failed"} 0.0
parley_turn_seconds_bucket{le="1.0",outcome="failed"} 0.0
parley_turn_seconds_bucket{le="+Inf",outcome="failed"} 1.0
odd{text="a \\"b\\" \\\\ c\\nd, e=\\"f\\""} 1.5e3 1700000000
broken line
nothing NaN
`;

describe("the numbers of a gateway", () => {
  const samples = parse(TEXT);

  it("are read with their labels, comments and broken lines left out", () => {
    expect(samples).toHaveLength(12);
    expect(samples.at(-1)).toEqual({
      name: "odd",
      labels: { text: 'a "b" \\ c\nd, e="f"' },
      value: 1500,
    });
  });

  it("are added up over the labels that were not asked for", () => {
    expect(sum(samples, "parley_messages_received_total")).toBe(10);
    expect(sum(samples, "parley_messages_received_total", { channel: "slack" })).toBe(3);
    expect(sum(samples, "absent")).toBeNull();
  });

  it("balance when every message has ended or is pending", () => {
    expect(conservation(samples)).toEqual({ received: 10, ended: 9, pending: 1, balanced: true });
    expect(conservation(parse("parley_messages_received_total 2")).balanced).toBe(false);
  });

  it("give quantiles, evenly within a bucket", () => {
    const buckets = histogram(samples, "parley_turn_seconds");

    expect(buckets.map((one) => one.count)).toEqual([2, 4, 5]);
    expect(quantile(buckets, 0.4)).toBeCloseTo(0.5);
    expect(quantile(buckets, 0.6)).toBeCloseTo(0.75);
    expect(quantile(buckets, 0.95)).toBe(1);
    expect(quantile([], 0.5)).toBeNull();
  });

  it("count what came in between, and all of it after a restart", () => {
    const old = [{ le: 1, count: 3 }];

    expect(since([{ le: 1, count: 5 }], old)).toEqual([{ le: 1, count: 2 }]);
    expect(since([{ le: 1, count: 2 }], old)).toEqual([{ le: 1, count: 2 }]);
  });
});
