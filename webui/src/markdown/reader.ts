/**
 * Reads a text that grows: only its unsettled end is parsed again.
 *
 * A block is settled once the blank line after it and the whole first line of the next block are
 * there, because no later text can change it then. Whatever was read before, the result equals that
 * of a fresh reader; what did not change keeps its identity, so that React passes over it.
 */

import { decided } from "./halfopen";
import { type Block, type Placed, parseBlocks, type References } from "./tree";

export type Document = { blocks: readonly Block[]; references: References };

export type Reader = (text: string, streaming: boolean) => Document;

export function createReader(): Reader {
  let settled = { text: "", blocks: [] as readonly Block[], references: noReferences() };
  let shown: Document = { blocks: [], references: settled.references };

  return (text, streaming) => {
    const clean = /[\r\0]/.test(text)
      ? text.replace(/\r\n?/g, "\n").replaceAll("\0", "\ufffd")
      : text;
    const visible = streaming ? decided(clean) : clean;
    if (!visible.startsWith(settled.text)) {
      settled = { text: "", blocks: [], references: noReferences() };
    }
    const tail = visible.slice(settled.text.length);
    const references = Object.assign(noReferences(), settled.references);
    const placed = parseBlocks(tail, streaming, references);
    const blocks = [...settled.blocks, ...placed.map(({ block }) => block)];
    shown = share(shown, { blocks, references });

    const cut = settledLine(placed, tail);
    if (cut) {
      const head = tail.slice(0, cut.offset);
      // Definitions after the cut are read again together with their text.
      const before = Object.assign(noReferences(), settled.references);
      parseBlocks(head, false, before);
      settled = {
        text: settled.text + head,
        blocks: shown.blocks.slice(0, settled.blocks.length + cut.count),
        references: before,
      };
    }
    return shown;
  };
}

function noReferences(): References {
  return Object.create(null);
}

/** The last block that follows a blank line and whose first line is complete. */
function settledLine(placed: Placed[], text: string): { count: number; offset: number } | null {
  const starts = lineStarts(text);
  for (let count = placed.length - 1; count > 0; count -= 1) {
    const line = placed[count]?.line ?? 0;
    const [above, start, end] = [starts[line - 1], starts[line], starts[line + 1]];
    if (above === undefined || start === undefined || end === undefined) continue;
    if (/^[ \t]*\n$/.test(text.slice(above, start))) return { count, offset: start };
  }
  return null;
}

function lineStarts(text: string): number[] {
  const starts = [0];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  return starts;
}

/** `next`, with every part that equals its counterpart in `before` replaced by that one. */
export function share<T>(before: unknown, next: T): T {
  if (before === next || typeof next !== "object" || next === null) return next;
  if (typeof before !== "object" || before === null) return next;
  const [old, fresh] = [before as Record<string, unknown>, next as Record<string, unknown>];
  const keys = Object.keys(fresh);
  let same = keys.length === Object.keys(old).length;
  for (const key of keys) {
    fresh[key] = share(old[key], fresh[key]);
    if (fresh[key] !== old[key]) same = false;
  }
  return same ? (before as T) : next;
}
