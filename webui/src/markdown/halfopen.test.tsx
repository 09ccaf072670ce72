import { renderToStaticMarkup } from "react-dom/server";
import { expect, test } from "vitest";
import { Markdown } from "./Markdown";

const growing = (text: string) =>
  renderToStaticMarkup(<Markdown text={text} streaming />).slice('<div class="md">'.length, -6);
const paragraph = (inner: string) => `<p dir="auto">${inner}</p>`;

test.each([
  ["a **bo", "a <strong>bo</strong>"],
  ["a **bold*", "a <strong>bold</strong>"],
  ["a **bold**", "a <strong>bold</strong>"],
  ["a **b _c", "a <strong>b <em>c</em></strong>"],
  ["a ***b", "a <em><strong>b</strong></em>"],
  ["a **b *c* d", "a <strong>b <em>c</em> d</strong>"],
  ["_a **b_ c", "<em>a **b</em> c"],
  ["a ~~b", "a <s>b</s>"],
  ["a `b", "a <code>b</code>"],
  ["a ``b`", "a <code>b</code>"],
  ["**a `b", "<strong>a <code>b</code></strong>"],
  ["a **", "a"],
  ["2*3 is six", "2*3 is six"],
  ["see [the **docs**](https://exam", "see the <strong>docs</strong>"],
  ["see ![pic](/api/v1/media/x", "see pic"],
  ["`a[0](b", "<code>a[0](b</code>"],
])("while it grows, %j looks as if it were closed", (text, inner) => {
  expect(growing(text)).toBe(paragraph(inner));
});

test("once an answer ends, marks that were never closed are what they are", () => {
  expect(renderToStaticMarkup(<Markdown text="a **b `c" />)).toContain("a **b `c");
});

test.each([
  "-",
  "--",
  "=",
  "1",
  "1.",
  "#",
  ">",
  "``",
  "```py",
  "| a | b",
  "| a |\n|--",
  "- [",
  "$$",
])("%j on the last line waits for the next character", (line) => {
  expect(growing(`text\n${line}`)).toBe(paragraph("text"));
});

test("a growing table shows complete rows only, with or without outer bars", () => {
  const rows = (text: string) => growing(text).match(/<tr>/g)?.length ?? 0;

  expect(rows("| a | b |\n|---|---|\n")).toBe(1);
  expect(rows("| a | b |\n|---|---|\n| 1 | 2")).toBe(1);
  expect(rows("| a | b |\n|---|---|\n| 1 | 2 |\n")).toBe(2);
  expect(rows("a | b\n--- | ---\n1 | 2")).toBe(1);
  expect(rows("a | b\n--- | ---\n1 | 2\n")).toBe(2);
});

test("an open fence is code from its first line on", () => {
  expect(growing("a\n```\nb *c*\n``")).toContain("<code>b *c*\n</code>");
});

test("an open formula shows its source, not half of it as emphasis", () => {
  expect(growing("a \\(x_1 + *y* + ")).toContain("<code>\\(x_1 + *y* +</code>");
  expect(growing("$$\nx_1 +\n*y* - z")).toContain("<code>$$\nx_1 +\n*y* - z</code>");
});
