import { Menu } from "lucide-react";
import { useEffect } from "react";
import "./ops.css";
import { useApp } from "../shell/store";
import { strings } from "../strings";
import { Channels } from "./Channels";
import { Chart } from "./Chart";
import { type Numbers, useGateway } from "./gateway";
import { latency, throughput } from "./history";
import { conservation, histogram, quantile, sum } from "./metrics";
import { Warnings } from "./Warnings";

const words = strings.operations;
const count = new Intl.NumberFormat(strings.locale, { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat(strings.locale, { maximumFractionDigits: 1 });

/** To the millisecond where it matters. */
const short = (milliseconds: number): string =>
  milliseconds < 1000 ? `${count.format(milliseconds)} ms` : strings.seconds(milliseconds);

export default function Operations({ onShowList }: { onShowList: () => void }) {
  const role = useApp((state) => state.link.ready?.role ?? state.me?.role);
  const hidden = useApp((state) => state.hidden);
  const { numbers, error } = useGateway(role === "admin" && !hidden);
  useEffect(() => {
    document.title = `${words.title} · ${strings.product}`;
  }, []);
  return (
    <main className="ops">
      <header className="ops-head">
        <button
          type="button"
          className="icon phone-only"
          aria-label={strings.sidebar.open}
          onClick={onShowList}
        >
          <Menu size={18} aria-hidden="true" />
        </button>
        <h1>{words.title}</h1>
        {numbers && (
          <p className="connection" data-phase={error === null ? "open" : "waiting"} role="status">
            <span className="dot" aria-hidden="true" />
            {error === null ? words.live : words.paused(error)}
          </p>
        )}
      </header>
      {role !== undefined && role !== "admin" && <p>{words.forAdmins}</p>}
      {role === "admin" && !numbers && <p className="quiet">{error ?? words.loading}</p>}
      {numbers && <Everything numbers={numbers} />}
    </main>
  );
}

function Everything({ numbers }: { numbers: Numbers }) {
  return (
    <>
      <div className="cards">
        <Running numbers={numbers} />
        <Latency numbers={numbers} which="firstWords" />
        <Latency numbers={numbers} which="turns" />
        <Throughput numbers={numbers} />
      </div>
      <Balance numbers={numbers} />
      <Gauges numbers={numbers} />
      <Channels numbers={numbers} />
      <Warnings events={numbers.warnings} />
    </>
  );
}

function Running({ numbers: { samples, history } }: { numbers: Numbers }) {
  const limit = sum(samples, "parley_turns_limit");
  const values = history.map((one) => one.running);
  return (
    <Chart name={words.running} values={values} least={4} shown={(value) => count.format(value)}>
      <p className="figure">{count.format(values.at(-1) ?? 0)}</p>
      <p className="quiet">{limit === null ? "" : words.runningOf(limit)}</p>
    </Chart>
  );
}

const LATENCIES = {
  firstWords: { name: words.firstWord, metric: "parley_turn_first_token_seconds" },
  turns: { name: words.turnTime, metric: "parley_turn_seconds" },
};

/** Of the last minute; of all time while nothing was answered in it. */
function Latency({ numbers, which }: { numbers: Numbers; which: keyof typeof LATENCIES }) {
  const { name, metric } = LATENCIES[which];
  const values = latency(numbers.history, which, 0.95);
  const halves = latency(numbers.history, which, 0.5);
  const all = histogram(numbers.samples, metric);
  const recent = values.at(-1) ?? null;
  const ever = (share: number) => (quantile(all, share) ?? 0) * 1000;
  const most = recent ?? ever(0.95);
  const half = recent === null ? ever(0.5) : (halves.at(-1) ?? 0);
  const none = quantile(all, 0.5) === null;
  return (
    <Chart name={name} values={values} least={100} shown={short}>
      <p className="figure">{none ? "–" : short(most)}</p>
      <p className="quiet">
        {none
          ? words.noAnswers
          : `${words.half(short(half))}, ${recent === null ? words.sinceStart : words.lastMinute}`}
      </p>
    </Chart>
  );
}

function Throughput({ numbers: { history } }: { numbers: Numbers }) {
  const values = throughput(history);
  return (
    <Chart name={words.throughput} values={values} least={6} shown={(value) => fine.format(value)}>
      <p className="figure">{fine.format(values.at(-1) ?? 0)}</p>
      <p className="quiet">{words.total(history.at(-1)?.received ?? 0)}</p>
    </Chart>
  );
}

function Balance({ numbers: { samples } }: { numbers: Numbers }) {
  const { received, ended, pending, balanced } = conservation(samples);
  const outcomes = new Map<string, number>();
  for (const one of samples) {
    if (one.name !== "parley_messages_outcome_total") continue;
    const outcome = one.labels.outcome ?? "";
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + one.value);
  }
  return (
    <section className="card balance" data-balanced={balanced}>
      <h2>{words.conservation}</h2>
      <p className="figure">{balanced ? words.balanced : words.unbalanced}</p>
      <p className="sum">{(balanced ? words.sum : words.missing)(received, ended, pending)}</p>
      <p className="quiet">{balanced ? words.balancedMeaning : words.unbalancedMeaning}</p>
      <dl className="outcomes">
        {[...outcomes].map(([outcome, value]) => (
          <div key={outcome}>
            <dt>{strings.outcome[outcome] ?? outcome}</dt>
            <dd>{count.format(value)}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function Gauges({ numbers: { samples, stats } }: { numbers: Numbers }) {
  const writes = sum(samples, "parley_append_seconds_count") ?? 0;
  const spent = sum(samples, "parley_append_seconds_sum") ?? 0;
  const values: [string, string][] = [
    [words.queue, count.format(stats.queued_messages)],
    [words.slots, count.format(sum(samples, "parley_turns_waiting") ?? 0)],
    [words.connections, count.format(stats.connections)],
    [words.undelivered, count.format(stats.undelivered_messages ?? 0)],
    [words.sessions, count.format(stats.total_sessions)],
    [words.stored, count.format(stats.total_messages)],
    [words.unsynced, strings.bytes(stats.unsynced_bytes ?? 0)],
    [words.write, writes > 0 ? `${fine.format((spent / writes) * 1e6)} µs` : "–"],
  ];
  return (
    <section>
      <h2>{words.gauges}</h2>
      <dl className="gauges">
        {values.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
