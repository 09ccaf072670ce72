import { strings } from "../strings";
import type { Numbers, Readiness } from "./gateway";
import { sum } from "./metrics";

const words = strings.operations;
const count = new Intl.NumberFormat(strings.locale);
const MOODS: Record<string, string> = { connected: "good", ok: "good", failed: "bad" };

export function Channels({ numbers: { readiness, samples } }: { numbers: Numbers }) {
  const of = (name: string, channel: string) => count.format(sum(samples, name, { channel }) ?? 0);
  return (
    <section>
      <h2 id="channels-head">{words.channels}</h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls can be scrolled with keys */}
      <section className="table" aria-labelledby="channels-head" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">{words.channel}</th>
              <th scope="col">{words.state}</th>
              <th scope="col">{words.details}</th>
              <th scope="col" className="number">
                {words.received}
              </th>
              <th scope="col" className="number">
                {words.ended}
              </th>
            </tr>
          </thead>
          <tbody>
            {Object.entries(readiness.channels).map(([name, channel]) => (
              <tr key={name}>
                <th scope="row">{strings.channels[name] ?? name}</th>
                <td>
                  <span className="pill" data-mood={mood(channel.state)}>
                    {words.channelStates[channel.state] ?? channel.state}
                  </span>
                </td>
                <td className="details">{details(channel)}</td>
                <td className="number">{of("parley_messages_received_total", name)}</td>
                <td className="number">{of("parley_messages_outcome_total", name)}</td>
              </tr>
            ))}
            <tr>
              <th scope="row">{words.store}</th>
              <td>
                <span className="pill" data-mood={mood(readiness.store.state)}>
                  {readiness.store.state === "ok" ? words.storeOk : words.channelStates.failed}
                </span>
              </td>
              <td className="details">{readiness.store.reason ?? ""}</td>
              <td />
              <td />
            </tr>
          </tbody>
        </table>
      </section>
    </section>
  );
}

const mood = (state: string): string => (state === "disabled" ? "none" : (MOODS[state] ?? "warn"));

function details(channel: Readiness["channels"][string]): string {
  return Object.entries(channel)
    .filter(([name, value]) => name !== "state" && value !== null && value !== "")
    .map(([name, value]) => words.detail(name, shown(value)))
    .join(" · ");
}

function shown(value: unknown): string {
  if (typeof value === "number") return count.format(Math.round(value));
  return typeof value === "string" ? value : JSON.stringify(value);
}
