import { renderToStaticMarkup } from "react-dom/server";
import { expect, test } from "vitest";
import { Markdown } from "./Markdown";

const row = `|${" cell |".repeat(10)}\n`;
const EXTREMES: [string, string][] = [
  ["marks that open and never close", "*a_".repeat(30_000)],
  ["nested marks below the bound of a paragraph", "*a _b ".repeat(3_300)],
  ["bold inside bold", `${"**a ".repeat(4_900)}`],
  ["one large table", `${row}|${"---|".repeat(10)}\n${row.repeat(1_600)}`],
  ["a table of one wide row", `|${"a|".repeat(30_000)}\n|${"-|".repeat(30_000)}\n`],
  ["nested quotes", `${">".repeat(50_000)} a`],
  ["nested quotes on many lines", `${"> ".repeat(60)}a\n`.repeat(800)],
  ["nested lists", Array.from({ length: 300 }, (_, n) => `${"  ".repeat(n)}- a`).join("\n")],
  ["list marks on one line", `${"- ".repeat(25_000)}a`],
  ["open brackets", "[".repeat(50_000)],
  ["open brackets below the bound", "[".repeat(19_000)],
  ["brackets in pairs", `${"[".repeat(9_000)}a${"]".repeat(9_000)}`],
  ["images inside images", `${"![".repeat(9_000)}a${"](/b)".repeat(3_000)}`],
  ["half links", "[a](".repeat(4_900)],
  ["backticks of every length", Array.from({ length: 190 }, (_, n) => "`".repeat(n)).join(" ")],
  ["fences that never close", "```js\n> ~~~\n- ````\n".repeat(5_000)],
  ["dollars", "$a ".repeat(6_600)],
  ["open formulas", "\\(a ".repeat(4_900)],
  ["open formulas on their own lines", "\\[a\n".repeat(25_000)],
  ["definitions", Array.from({ length: 4_000 }, (_, n) => `[a${n}]: /b\n`).join("")],
  ["angle brackets", "<a ".repeat(6_600)],
  ["entities", "&amp;".repeat(3_900)],
  ["addresses", "https://a.b/ ".repeat(1_500)],
  ["a word without end", "x".repeat(200_000)],
  ["blank lines", "\n".repeat(200_000)],
  ["spaces", `a${" ".repeat(100_000)}b`],
];

test.each(EXTREMES)("%s: drawn to the end, growing or not", (_, text) => {
  for (const streaming of [true, false]) {
    const drawn = renderToStaticMarkup(<Markdown text={text} streaming={streaming} />);

    expect(drawn.endsWith("</div>")).toBe(true);
  }
});

test("what is nested too deep is shown as it was written", () => {
  expect(renderToStaticMarkup(<Markdown text={`${"> ".repeat(100)}deep`} />)).toContain("deep");
  expect(renderToStaticMarkup(<Markdown text={`${"- ".repeat(100)}deep`} />)).toContain("deep");
});
