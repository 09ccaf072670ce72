import fc from "fast-check";
import { expect, test } from "vitest";
import { createReader } from "./reader";

const MIXED = `# Title with *stress*

Text with **bold**, _soft_, ~~gone~~, \`code\` and [a link](https://example.org/a_(b) "t").
Second line, see [the list][ref] and $a_1 + b_2$.

Setext
===
- one
- two
  1. inner
  2. more

     loose
- [x] done

> quote
lazy
> > deeper

\`\`\`py
def f(x):
    return "\`\`" * x

| not | a table |
\`\`\`

| a | b |
|:--|--:|
| 1 | 2 \\| 3 |
| x<br>y |

$$
x = 1
- y
$$

1. a

2. b

text \\(x\\) and \\[ y
= z \\]

    indented

    code
***
[ref]: https://example.org/list
'a title'

שלום עולם [again][ref]
`;

const FRAGMENTS = [
  ..."#>-+*_~`|$[]()!\\=:. \n\n\n\t0123abc<&".split(""),
  ..."\r\n,\n\n,```,~~~,**,__,$$,\\[,\\],\\(,\\),- a,1. b,2. c,> q,| a | b |,|---|---|".split(","),
  ..."[r]: /u,[r],[x](/y),![i](/z),    code,- [ ] t,---,===,word, \n,  \n,'t'".split(","),
];

const documents = fc.array(fc.constantFrom(...FRAGMENTS), { maxLength: 60 }).map((f) => f.join(""));

test("a streamed text at every prefix equals a fresh reading of that prefix", () => {
  const read = createReader();

  for (let end = 0; end <= MIXED.length; end += 1) {
    const prefix = MIXED.slice(0, end);
    expect(read(prefix, true)).toEqual(createReader()(prefix, true));
  }
  expect(read(MIXED, false)).toEqual(createReader()(MIXED, false));
});

test("the same holds for any text in any pieces", () => {
  fc.assert(
    fc.property(documents, fc.integer({ min: 1, max: 9 }), (text, step) => {
      const read = createReader();
      for (let end = 0; end < text.length; end += step) {
        const prefix = text.slice(0, end);
        expect(read(prefix, true)).toEqual(createReader()(prefix, true));
      }
      expect(read(text, false)).toEqual(createReader()(text, false));
    }),
    { numRuns: 5000 },
  );
});

test("a text that is replaced and not continued is read anew", () => {
  const read = createReader();
  read("first\n\nsecond\n\nthird\n\n", true);

  expect(read("other\n\ntext", true)).toEqual(createReader()("other\n\ntext", true));
});

test("what did not change keeps its identity", () => {
  const read = createReader();
  const before = read("# a\n\n- one\n- two\n\n| a |\n|---|\n| 1 |\n| 2", true);
  const after = read("# a\n\n- one\n- two\n\n| a |\n|---|\n| 1 |\n| 2 |\n", true);

  expect(after.blocks[0]).toBe(before.blocks[0]);
  expect(after.blocks[1]).toBe(before.blocks[1]);
  expect(after.blocks[2]).not.toBe(before.blocks[2]);
  expect(after.references).toBe(before.references);
});

test("a definition at the end reaches links that were settled long before", () => {
  const read = createReader();
  read("see [r]\n\nmore\n\nand more\n\n", true);

  expect(read("see [r]\n\nmore\n\nand more\n\n[r]: /u\n", true).references).toHaveProperty("R");
});
