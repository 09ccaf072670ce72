import { renderToStaticMarkup } from "react-dom/server";
import { beforeAll, expect, test } from "vitest";
import { highlighter } from "./Code";
import { Markdown } from "./Markdown";
import PAYLOADS from "./payloads.json";

const ATTRIBUTES: Record<string, RegExp> = {
  class: /^[\w -]+$/,
  dir: /^(?:auto|ltr)$/,
  href: /^(?:https?:\/\/|mailto:|tel:|#|\/(?![/\\]))/i,
  src: /^\/api\/v1\/media\/[\w-]+(?:\?|$)/,
  target: /^_blank$/,
  rel: /^noopener noreferrer nofollow$/,
  type: /^(?:checkbox|button)$/,
  role: /^group$/,
  tabindex: /^0$/,
  start: /^\d+$/,
  loading: /^lazy$/,
  decoding: /^async$/,
  title: /^/,
  alt: /^/,
  "aria-label": /^(?:Table|Formula|Done|To do)$/,
  "aria-live": /^polite$/,
  "aria-hidden": /^true$/,
  hidden: /^$/,
  disabled: /^$/,
  checked: /^$/,
};
const TAGS =
  "div p h3 h4 h5 h6 ul ol li blockquote pre code table thead tbody tr th td hr br " +
  "em strong s a img span input button";
const ALLOWED = new Set(TAGS.split(" "));
const ICON = /<svg [^>]*class="lucide[^>]*>.*?<\/svg>/g;

const entities: Record<string, string> = { quot: '"', amp: "&", lt: "<", gt: ">", "#x27": "'" };
const decode = (text: string) => text.replace(/&([#\w]+);/g, (_, name) => entities[name] ?? "?");

/** Everything in the markup that is not on the lists above. */
function violations(markup: string): string[] {
  const found: string[] = [];
  for (const [tag, name = "", attributes = ""] of markup.matchAll(/<\/?([^\s/>]+)([^>]*)>/g)) {
    if (!ALLOWED.has(name)) found.push(tag);
    for (const [pair, key = "", value = ""] of attributes.matchAll(/([^\s=/]+)(?:="([^"]*)")?/g)) {
      if (!ATTRIBUTES[key]?.test(decode(value))) found.push(`${name} ${pair}`);
    }
  }
  return found;
}

const drawn = (text: string, streaming: boolean) =>
  renderToStaticMarkup(<Markdown text={text} streaming={streaming} />).replace(ICON, "");

beforeAll(() => highlighter.fetch());

test("the list of payloads is long", () => {
  expect(new Set(PAYLOADS).size).toBeGreaterThanOrEqual(120);
});

test.each(PAYLOADS)("%j gives only allowed tags, attributes and addresses", (payload) => {
  expect(violations(drawn(payload, false))).toEqual([]);
  expect(violations(drawn(payload, true))).toEqual([]);
});

const AROUND: [string, (payload: string) => string][] = [
  ["a quote", (payload) => `> ${payload}`],
  ["a list", (payload) => `- [x] ${payload}`],
  ["a table", (payload) => `| a | b |\n|---|---|\n| ${payload} | ${payload} |\n`],
  ["emphasis", (payload) => `**_${payload}_**`],
  ["a link", (payload) => `[${payload}](${payload})`],
  ["an image", (payload) => `![${payload}](${payload} "${payload}")`],
  ["a definition", (payload) => `[a][r] ![b][r]\n\n[r]: ${payload} "${payload}"`],
  ["an autolink", (payload) => `<${payload}> https://example.org/${payload}`],
  ["code", (payload) => `\`\`\`html ${payload}\n${payload}\n\`\`\`\n\`${payload}\``],
  ["a fence's language", (payload) => `\`\`\`${payload}\nx\n\`\`\``],
  ["a formula", (payload) => `$${payload}$ $$${payload}$$ \\(${payload}\\)`],
];

test.each(AROUND)("no payload gets out of %s", (_, around) => {
  const found = PAYLOADS.flatMap((payload) => violations(drawn(around(payload), false)));

  expect(found).toEqual([]);
});

test("no prefix of a payload is worse than the whole", () => {
  const found = PAYLOADS.flatMap((payload) =>
    Array.from(payload, (_, end) => violations(drawn(payload.slice(0, end), true))).flat(),
  );

  expect(found).toEqual([]);
});

test("the check itself finds what must not be there", () => {
  expect(violations('<a href="javascript:x">')).toHaveLength(1);
  expect(violations('<img src="/api/v1/media/x" onerror="x">')).toHaveLength(1);
  expect(violations('<p id="x" style="y"><script>')).toHaveLength(3);
});
