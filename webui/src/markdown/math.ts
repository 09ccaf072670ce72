/**
 * Formulas for markdown-it: `$…$`, `$$…$$`, `\(…\)`, `\[…\]`.
 *
 * A formula never holds a blank line, so one that is not closed ends with its paragraph. While an
 * answer still grows, an unclosed one at its end is a formula to be (`meta.open`). A lone `$` waits
 * for its partner instead: it is more often money.
 */

import type { MarkdownIt, StateBlock, StateInline } from "markdown-it";

const CLOSER: Record<string, string> = { $$: "$$", "\\(": "\\)", "\\[": "\\]" };
const MAX_LINES = 60;

export function math(md: MarkdownIt): void {
  md.inline.ruler.before("escape", "math", inlineMath);
  md.block.ruler.before("fence", "math", blockMath, {
    alt: ["paragraph", "reference", "blockquote", "list"],
  });
}

function inlineMath(state: StateInline, silent: boolean): boolean {
  const first = state.src[state.pos];
  if (first !== "$" && first !== "\\") return false;
  const marker = state.src.slice(state.pos, state.pos + 2);
  const closer = CLOSER[marker];
  return closer ? wide(state, silent, marker, closer) : first === "$" && dollar(state, silent);
}

function wide(state: StateInline, silent: boolean, marker: string, closer: string): boolean {
  const start = state.pos + 2;
  let end = state.env[closer] === false ? -1 : state.src.indexOf(closer, start);
  if (end < 0) state.env[closer] = false; // A formula that is missing is searched once.
  if (end + closer.length > state.posMax) end = -1;
  if (end < 0 && !state.env.open) return false;
  const stop = end < 0 ? state.posMax : end;
  const source = state.src.slice(start, stop);
  if (!source.trim()) return false;
  if (!silent) push(state, source, marker !== "\\(", end < 0, marker, closer);
  state.pos = end < 0 ? state.posMax : end + closer.length;
  return true;
}

function dollar(state: StateInline, silent: boolean): boolean {
  const start = state.pos + 1;
  let end = start;
  while (end < state.posMax && state.src[end] !== "$") end += state.src[end] === "\\" ? 2 : 1;
  if (end >= state.posMax || end === start) return false;
  const touches = !/\s/.test(state.src[start] ?? "") && !/\s/.test(state.src[end - 1] ?? "");
  if (!touches || /[\d$]/.test(state.src[end + 1] ?? "")) return false;
  if (!silent) push(state, state.src.slice(start, end), false, false, "$", "$");
  state.pos = end + 1;
  return true;
}

function push(
  state: StateInline,
  source: string,
  display: boolean,
  open: boolean,
  marker: string,
  closer: string,
): void {
  const token = state.push("math", "", 0);
  token.content = source;
  token.markup = marker + source + (open ? "" : closer);
  token.meta = { display, open };
}

function blockMath(state: StateBlock, startLine: number, endLine: number, silent: boolean) {
  if ((state.sCount[startLine] ?? 0) - state.blkIndent >= 4) return false;
  const marker = line(state, startLine).slice(0, 2);
  if (marker !== "$$" && marker !== "\\[") return false;
  const closer = marker === "$$" ? "$$" : "\\]";
  const lines = [line(state, startLine).slice(2).trimEnd()];
  let last = startLine;
  while (!lines.at(-1)?.includes(closer)) {
    last += 1;
    if (last >= endLine || lines.length === MAX_LINES) break;
    if (state.isEmpty(last) || (state.sCount[last] ?? 0) < state.blkIndent) return false;
    lines.push(line(state, last).trimEnd());
  }
  const final = lines.at(-1) ?? "";
  const open = !final.includes(closer);
  if (open && !(state.env.streaming && last === state.env.lines)) return false;
  if (!open && final.indexOf(closer) + closer.length !== final.length) return false;
  if (silent) return true;
  const text = lines.join("\n");
  const source = open ? text : text.slice(0, -closer.length);
  const token = state.push("math_block", "", 0);
  token.content = source;
  token.markup = marker + source + (open ? "" : closer);
  token.meta = { open };
  state.line = open ? last : last + 1;
  token.map = [startLine, state.line];
  return true;
}

function line(state: StateBlock, number: number): string {
  const start = (state.bMarks[number] ?? 0) + (state.tShift[number] ?? 0);
  return state.src.slice(start, state.eMarks[number]);
}
