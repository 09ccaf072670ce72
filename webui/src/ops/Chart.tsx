import type { ReactNode } from "react";
import { strings } from "../strings";
import { path } from "./history";

interface Props {
  name: string;
  values: (number | null)[];
  shown: (value: number) => string;
  /** The top of the chart is at least this much, so that a quiet line stays low. */
  least: number;
  children: ReactNode;
}

/** A number, what it means, and its last minutes. */
export function Chart({ name, values, shown, least, children }: Props) {
  const known = values.filter((value) => value !== null);
  const line = path(values, Math.max(least, ...known));
  return (
    <article className="card">
      <h2>{name}</h2>
      {children}
      <svg viewBox="0 0 100 30" preserveAspectRatio="none" role="img" aria-label={words()}>
        <path className="ground" d="M0 29.5L100 29.5" vectorEffect="non-scaling-stroke" />
        <path className="area" d={filled(line)} />
        <path className="line" d={line} vectorEffect="non-scaling-stroke" />
      </svg>
    </article>
  );

  function words(): string {
    const range =
      known.length === 0
        ? strings.operations.noValues
        : strings.operations.range(shown(Math.min(...known)), shown(Math.max(...known)));
    return strings.operations.chart(name, range);
  }
}

/** The same pieces, each closed along the ground. */
function filled(line: string): string {
  return line
    .split("M")
    .filter((piece) => piece.includes("L"))
    .map((piece) => {
      const points = piece.split("L");
      const x = (point: string | undefined) => point?.split(" ")[0] ?? "0";
      return `M${x(points[0])} 29.5L${points.join("L")}L${x(points.at(-1))} 29.5Z`;
    })
    .join("");
}
