/** Markdown as a tree of plain values: what the page draws, without React and without HTML. */

import MarkdownIt, { type Env, type Token } from "markdown-it";
import { halfOpen, withoutLastMark } from "./halfopen";
import { safeLink } from "./links";
import { math } from "./math";

/** `open`: the answer still grows here. */
export type Leaf = { source: string; open: boolean };
export type Align = "left" | "center" | "right" | "";
export type Item = { kind: "item"; checked: boolean | null; children: Block[] };
export type Block =
  | ({ kind: "paragraph"; tight: boolean } & Leaf)
  | ({ kind: "heading"; level: number } & Leaf)
  | { kind: "code"; language: string; text: string; open: boolean }
  | ({ kind: "math"; markup: string } & Leaf)
  | { kind: "rule" }
  | { kind: "quote"; children: Block[] }
  | { kind: "list"; ordered: boolean; start: number; children: Item[] }
  | { kind: "table"; align: Align[]; head: string[]; rows: string[][] };
export type References = NonNullable<Env["references"]>;

/** A block and the line of the parsed text on which it starts. */
export type Placed = { block: Block; line: number };

const MAX_NESTING = 40;

/** More text than this in one paragraph is drawn as it is: the work per paragraph stays bounded. */
const MAX_INLINE = 20_000;

const md = new MarkdownIt({ html: false, linkify: true, maxNesting: MAX_NESTING });
// Without a scheme `main.py` and `README.md` would be links: both endings are countries.
md.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
md.validateLink = safeLink;
md.use(math).use(halfOpen);
md.inline.ruler.before("autolink", "line_break", (state, silent) => {
  // Models write <br> in table cells, where Markdown has no line break of its own.
  const found = /^<br ?\/?>/i.exec(state.src.slice(state.pos, state.pos + 6));
  if (!found) return false;
  if (!silent) state.push("hardbreak", "br", 0);
  state.pos += found[0].length;
  return true;
});

export function parseInline(leaf: Leaf, references: References): Token[] {
  const tokens: Token[] = [];
  if (leaf.source.length > MAX_INLINE) return [plain(leaf.source)];
  const source = leaf.open ? withoutLastMark(leaf.source) : leaf.source;
  md.inline.parse(source, md, { references, open: leaf.open }, tokens);
  return tokens;
}

function plain(source: string): Token {
  const [token] = md.parseInline("x", {})[0]?.children ?? [];
  if (!token) throw new Error("no text token");
  token.content = source;
  return token;
}

export function parseBlocks(text: string, streaming: boolean, references: References): Placed[] {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  const tokens: Token[] = [];
  md.block.parse(text, md, { references, streaming, lines: lines.length }, tokens);
  const partial = streaming && !text.endsWith("\n") ? lines.length - 1 : -1;
  const builder = new Builder(tokens, lines, partial);
  const placed = builder.top();
  const last = placed.at(-1);
  if (streaming && last && !/\n[ \t]*\n$/.test(text)) markOpen(last.block);
  return placed;
}

function markOpen(block: Block | Item): void {
  if ("open" in block) {
    if (block.kind !== "math") block.open = true;
  } else if ("children" in block) {
    const last = block.children.at(-1);
    if (last) markOpen(last);
  }
}

class Builder {
  private at = 0;

  constructor(
    private readonly tokens: Token[],
    private readonly lines: string[],
    /** The line that is still being written, if any. */
    private readonly partial: number,
  ) {}

  top(): Placed[] {
    const placed: Placed[] = [];
    while (this.at < this.tokens.length) {
      const line = this.peek().map?.[0] ?? 0;
      const block = this.block();
      if (block) placed.push({ block, line });
    }
    return placed;
  }

  private peek(): Token {
    const token = this.tokens[this.at];
    if (!token) throw new Error("the tokens end inside a block");
    return token;
  }

  private next(): Token {
    const token = this.peek();
    this.at += 1;
    return token;
  }

  private children(opener: Token): Block[] {
    const blocks: Block[] = [];
    while (this.peek().nesting >= 0) {
      const block = this.block();
      if (block) blocks.push(block);
    }
    this.at += 1;
    return blocks.length > 0 ? blocks : this.tooDeep(opener);
  }

  /** The parser goes so deep and no deeper; what lies below is shown as it was written. */
  private tooDeep(opener: Token): Block[] {
    if (opener.level < MAX_NESTING - 2) return [];
    const source = this.lines.slice(...(opener.map ?? [0, 0])).join("\n");
    return [{ kind: "code", language: "", text: source, open: false }];
  }

  private block(): Block | null {
    const token = this.next();
    switch (token.type) {
      case "paragraph_open":
        return { kind: "paragraph", tight: token.hidden, ...this.leaf() };
      case "heading_open":
        return { kind: "heading", level: Number(token.tag.slice(1)), ...this.leaf() };
      case "fence":
      case "code_block":
        return { kind: "code", language: language(token.info), text: token.content, open: false };
      case "math_block":
        return {
          kind: "math",
          source: token.content,
          markup: token.markup,
          open: token.meta?.open === true,
        };
      case "hr":
        return { kind: "rule" };
      case "blockquote_open":
        return { kind: "quote", children: this.children(token) };
      case "bullet_list_open":
      case "ordered_list_open":
        return this.list(token);
      case "table_open":
        return this.table();
      default:
        return null;
    }
  }

  private leaf(): Leaf {
    const source = this.next().content;
    this.at += 1;
    return { source, open: false };
  }

  private list(opener: Token): Block {
    const children: Item[] = [];
    while (this.peek().type === "list_item_open") children.push(this.item());
    this.at += 1;
    const start = Number(opener.attrGet("start") ?? 1);
    return { kind: "list", ordered: opener.type === "ordered_list_open", start, children };
  }

  private item(): Item {
    const children = this.children(this.next());
    const first = children[0];
    const box = first?.kind === "paragraph" ? /^\[([ xX])\]\s+/.exec(first.source) : null;
    if (!box || first?.kind !== "paragraph") return { kind: "item", checked: null, children };
    const rest = { ...first, source: first.source.slice(box[0].length) };
    return { kind: "item", checked: box[1] !== " ", children: [rest, ...children.slice(1)] };
  }

  private table(): Block {
    const align: Align[] = [];
    const rows: string[][] = [];
    let row: string[] = [];
    for (let token = this.next(); token.type !== "table_close"; token = this.next()) {
      if (token.type === "tr_open") row = [];
      else if (token.type === "th_open") align.push(alignment(token));
      else if (token.type === "inline") row.push(token.content);
      if (token.type === "tr_open" && token.map?.[0] !== this.partial) rows.push(row);
    }
    const [head = [], ...body] = rows;
    return { kind: "table", align, head, rows: body };
  }
}

function alignment(token: Token): Align {
  const found = /left|center|right/.exec(String(token.attrGet("style") ?? ""));
  return (found?.[0] ?? "") as Align;
}

function language(info: string): string {
  return (/^[^\s{,:]{1,32}/.exec(info.trim())?.[0] ?? "").toLowerCase();
}
