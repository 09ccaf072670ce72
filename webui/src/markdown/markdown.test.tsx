import { renderToStaticMarkup } from "react-dom/server";
import { beforeAll, expect, test } from "vitest";
import { highlighter } from "./Code";
import { Markdown } from "./Markdown";

const html = (text: string, streaming = false) =>
  renderToStaticMarkup(<Markdown text={text} streaming={streaming} />)
    .replace(/^<div class="md">/, "")
    .replace(/<\/div>$/, "");

beforeAll(() => highlighter.fetch());

test("paragraphs hold emphasis, code and line breaks", () => {
  expect(html("a **b** _c_ ~~d~~ `<e>`\nf")).toBe(
    '<p dir="auto">a <strong>b</strong> <em>c</em> <s>d</s> <code>&lt;e&gt;</code><br/>f</p>',
  );
});

test("headings start below those of the page and keep the look of their level", () => {
  expect(html("# a\n\n###### b")).toBe(
    '<h3 class="md-h1" dir="auto">a</h3><h6 class="md-h6" dir="auto">b</h6>',
  );
});

test("lists nest, are tight or loose, and start where they say", () => {
  expect(html("3. a\n   - b\n4. c")).toBe(
    '<ol dir="auto" start="3"><li>a<ul><li>b</li></ul></li><li>c</li></ol>',
  );
  expect(html("- a\n\n- b")).toBe('<ul dir="auto"><li><p>a</p></li><li><p>b</p></li></ul>');
});

test("task lists show boxes nobody can tick", () => {
  const box = '<input type="checkbox" disabled="" aria-label="Done" checked=""/>';

  expect(html("- [x] a")).toBe(`<ul dir="auto"><li class="md-task">${box}a</li></ul>`);
  expect(html("- [x]a")).toBe('<ul dir="auto"><li>[x]a</li></ul>');
});

test("quotes hold blocks and continue over lazy lines", () => {
  expect(html("> a\nb\n>\n> > c")).toBe(
    '<blockquote dir="auto"><p>a<br/>b</p><blockquote><p>c</p></blockquote></blockquote>',
  );
});

test("tables align by class, scroll in a box of their own and keep <br>", () => {
  const table = html("| a | b |\n|---|--:|\n| 1<br>2 | 3 |");

  expect(table).toContain('<div class="md-table" aria-label="Table" role="group" tabindex="0">');
  expect(table).toContain('<th>a</th><th class="md-right">b</th>');
  expect(table).toContain('<td>1<br/>2</td><td class="md-right">3</td>');
  expect(table).not.toContain("style");
});

test("code has its language, a copy button and colours", () => {
  const code = html("```js title=x\nlet a = 1 < 2\n```");

  expect(code).toContain("<span>js</span>");
  expect(code).toContain('<span class="hljs-keyword">let</span>');
  expect(code).toContain("1</span> &lt; <span");
  expect(code).toMatch(/<button type="button" class="md-copy" aria-live="polite">.*Copy<\/button>/);
});

test("code in an unknown language and very large code stay plain and complete", () => {
  const large = "let a = 1\n".repeat(4000);

  expect(html("```brainfudge\nlet a\n```")).toContain("<code>let a\n</code>");
  expect(html(`\`\`\`js\n${large}\`\`\``)).not.toContain("hljs");
  expect(html(`\`\`\`js\n${large}\`\`\``).match(/let a = 1\n/g)).toHaveLength(4000);
});

test("growing code is coloured in two parts and loses nothing", () => {
  const lines = Array.from({ length: 400 }, (_, n) => `let a${n} = "${n}"\n`).join("");
  const drawn = html(`\`\`\`js\n${lines}x`, true);

  expect(drawn.replace(/<[^>]*>/g, "")).toContain(`${lines}x`.replaceAll('"', "&quot;"));
});

test.each([
  ["$a_1$", "$a_1$"],
  ["\\(a*b*c\\)", "\\(a*b*c\\)"],
  ["x $$a$$", "$$a$$"],
  ["$$\na\n$$", "$$\na\n$$"],
  ["\\[\na\n- b\n\\]", "\\[\na\n- b\n\\]"],
])("%j is a formula, its source shown until KaTeX is there", (text, markup) => {
  expect(html(text)).toContain(`<span hidden=""></span><code>${markup}</code>`);
});

test.each([
  "$5 and $10",
  "`$a$`",
  "    $$a$$",
  "a $ b $ c",
  "\\$a\\$",
  "US$5-US$7",
  "$$\na\n\nb\n$$",
])("%j holds no formula", (text) => {
  expect(html(text)).not.toContain("md-math");
});

test("links open elsewhere and tell nothing; what is no safe address is text", () => {
  const rel = 'target="_blank" rel="noopener noreferrer nofollow"';

  expect(html("[a](https://b.c 'd')")).toContain(`<a href="https://b.c" title="d" ${rel}>a</a>`);
  expect(html("https://b.c/d_e_f.")).toContain(`<a href="https://b.c/d_e_f" ${rel}>`);
  expect(html("<me@b.c>")).toContain('href="mailto:me@b.c"');
  expect(html("[a](#b)")).toBe('<p dir="auto"><a href="#b">a</a></p>');
  expect(html("see main.py and README.md")).not.toContain("<a");
  expect(html("[r]\n\n[r]: /u")).toContain('<a href="/u"');
});

test("our media is shown, remote images are links, never inside another link", () => {
  const media = "/api/v1/media/abc?exp=1&sig=2";

  expect(html(`![a *b*](${media})`)).toContain(
    '<img src="/api/v1/media/abc?exp=1&amp;sig=2" alt="a b" loading="lazy" decoding="async"/>',
  );
  expect(html("![a](https://b.c/d.png)")).toMatch(/<a href="https:\/\/b.c\/d.png"[^>]*>a<\/a>/);
  expect(html("[![a](https://b.c/d.png)](https://e.f)").match(/<a /g)).toHaveLength(1);
  expect(html("![a](/api/v1/media/../logs)")).not.toContain("<img");
});

test("right-to-left text and words without end are kept as they are", () => {
  const word = "x".repeat(10_000);

  expect(html("שלום **עולם**")).toBe('<p dir="auto">שלום <strong>עולם</strong></p>');
  expect(html(word)).toBe(`<p dir="auto">${word}</p>`);
});
