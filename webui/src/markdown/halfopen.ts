/**
 * What has begun but not ended in an answer that still grows.
 *
 * Marks at the growing end read as if they were closed there, so that bold text is bold from its
 * first letter on. Lines whose meaning the next character decides are held back.
 */

import type { MarkdownIt, StateInline } from "markdown-it";

const CONTAINERS = /^[\s>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*/;

// A lone "-" below a paragraph would make it a heading; "1" may become a list, "``" a fence.
const UNDECIDED = /^(?:[-=*+_#~`>|:$\s]*|\d{1,9}[.)]?|\[[ xX]?\]?|\\\[?)$/;
const FENCE = /^(?:`{3,}[^`]*|~{3,}.*)$/;

/** The part of a growing text that can be drawn without having to be taken back. */
export function decided(text: string): string {
  const start = text.lastIndexOf("\n") + 1;
  const rest = content(text, start);
  if (!UNDECIDED.test(rest) && !FENCE.test(rest) && !rest.startsWith("|")) return text;
  // A line of cells is a table only once the line of dashes below it is complete.
  const header = lineBefore(text, start);
  const lone =
    start > 0 && isRow(text, header) && !(header > 0 && isRow(text, lineBefore(text, header)));
  return text.slice(0, lone ? header : start);
}

/** The beginning of the line at `start`, without the marks of quotes and lists. */
function content(text: string, start: number): string {
  const end = text.indexOf("\n", start);
  const line = text.slice(start, Math.min(end < 0 ? text.length : end, start + 2000));
  return line.replace(CONTAINERS, "");
}

function lineBefore(text: string, start: number): number {
  return start < 2 ? 0 : text.lastIndexOf("\n", start - 2) + 1;
}

function isRow(text: string, start: number): boolean {
  return content(text, start).startsWith("|");
}

/** A mark at the very end is not yet known to open or to close: both look the same without it. */
export function withoutLastMark(source: string): string {
  return source.replace(/\\?[*_~`]{1,8}$|\\$/, "").trimEnd();
}

export function halfOpen(md: MarkdownIt): void {
  md.inline.ruler.before("backticks", "open_code", openCode);
  md.inline.ruler.before("link", "open_link", openLink);
  md.inline.ruler2.after("balance_pairs", "open_emphasis", closeEmphasis);
}

function openCode(state: StateInline, silent: boolean): boolean {
  if (!state.env.open || state.src[state.pos] !== "`") return false;
  let start = state.pos;
  while (state.src[start] === "`") start += 1;
  const ticks = start - state.pos;
  for (const run of state.src.slice(start, state.posMax).matchAll(/`+/g)) {
    if (run[0].length === ticks) return false;
  }
  if (!silent) {
    const token = state.push("code_inline", "code", 0);
    token.content = state.src.slice(start, state.posMax).trim().replace(/\n/g, " ");
  }
  state.pos = state.posMax;
  return true;
}

const HALF_LINK = /!?\[((?:\\.|[^\\[\]]){1,500})\]\([^\n)]{0,2000}$/y;

/** `[label](https://exam`: the label alone, until the address is complete. */
function openLink(state: StateInline, silent: boolean): boolean {
  if (!state.env.open || !/[![]/.test(state.src[state.pos] ?? "")) return false;
  HALF_LINK.lastIndex = state.pos;
  const found = HALF_LINK.exec(state.src);
  if (!found || state.posMax !== state.src.length) return false;
  if (!silent) {
    const end = state.posMax;
    state.pos = state.src.indexOf("[", state.pos) + 1;
    state.posMax = state.pos + (found[1] ?? "").length;
    state.md.inline.tokenize(state);
    state.posMax = end;
  }
  state.pos = state.posMax;
  return true;
}

function closeEmphasis(state: StateInline): void {
  if (!state.env.open) return;
  const delimiters = state.delimiters;
  let reach = -1;
  const open = delimiters.filter((delimiter, index) => {
    reach = Math.max(reach, delimiter.end);
    return (
      delimiter.end < 0 && delimiter.open && index > reach && !insideWord(state, delimiter.token)
    );
  });
  for (const opener of open.reverse()) {
    state.push("text", "", 0);
    opener.end = delimiters.length;
    delimiters.push({
      marker: opener.marker,
      length: 0,
      token: state.tokens.length - 1,
      end: -1,
      open: false,
      close: true,
    });
  }
}

/** The star of `2*3`, which may open emphasis but hardly ever does. */
function insideWord(state: StateInline, token: number): boolean {
  const mark = state.tokens[token]?.content;
  let before = token - 1;
  while (before >= 0 && state.tokens[before]?.content === mark) before -= 1;
  return /[0-9A-Za-z]$/.test(state.tokens[before]?.content ?? "");
}
