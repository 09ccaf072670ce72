import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDown } from "lucide-react";
import { useEffect, useLayoutEffect, useRef, useState } from "react";
import type { Item } from "../core/view";
import { loadOlder, targetShown, useApp } from "../shell/store";
import { strings } from "../strings";
import { dayName } from "../time";
import { AnswerItem } from "./AnswerItem";
import type { Editing } from "./Conversation";
import { MineItem } from "./MineItem";
import { ProgressItem } from "./ProgressItem";

const NEAR_END = 80;
const NEAR_START = 600;

interface Props {
  chatKey: string;
  items: Item[];
  older: boolean;
  writable: boolean;
  onEdit: (editing: Editing) => void;
}

export function Thread({ chatKey, items, older, writable, onEdit }: Props) {
  const scroller = useRef<HTMLElement>(null);
  const [away, setAway] = useState(false);
  const rows = useVirtualizer({
    count: items.length,
    getScrollElement: () => scroller.current,
    estimateSize: (at) => estimate(items[at]),
    getItemKey: (at) => items[at]?.key ?? at,
    anchorTo: "end",
    followOnAppend: true,
    scrollEndThreshold: NEAR_END,
    overscan: 6,
    paddingStart: 24,
    paddingEnd: 24,
  });
  useLayoutEffect(() => {
    rows.scrollToEnd();
  }, [rows]);
  const own = items.findLast((item) => item.kind === "mine" && item.seq === null)?.key;
  useEffect(() => {
    // What one has just written is always shown.
    if (own !== undefined) rows.scrollToEnd();
  }, [own, rows]);
  // A search found a message: everything from it on has been read, so it has a place.
  const target = useApp((state) => (state.target?.key === chatKey ? state.target.seq : null));
  const [marked, setMarked] = useState<string | null>(null);
  useEffect(() => {
    const at = target === null ? -1 : placeOfSeq(items, target, older);
    if (at < 0) return;
    rows.scrollToIndex(at, { align: "center" });
    setMarked(items[at]?.key ?? null);
    targetShown();
  }, [target, items, older, rows]);
  const onScroll = () => {
    const element = scroller.current;
    if (!element) return;
    setAway(element.scrollHeight - element.scrollTop - element.clientHeight > 240);
    if (older && element.scrollTop < NEAR_START) void loadOlder(chatKey);
  };
  const lastAnswer = items.findLast((item) => item.kind === "answer")?.key;
  const now = new Date();
  return (
    <div className="thread-frame">
      <section
        className="thread"
        ref={scroller}
        onScroll={onScroll}
        aria-label={strings.thread.label}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls can be scrolled with keys
        tabIndex={0}
      >
        {older && <p className="older quiet">{strings.thread.older}</p>}
        <div className="rows" style={{ height: rows.getTotalSize() }}>
          {rows.getVirtualItems().map((row) => {
            const item = items[row.index];
            if (!item) return null;
            return (
              <div
                key={row.key}
                data-index={row.index}
                ref={rows.measureElement}
                className="row"
                data-marked={row.key === marked}
                style={{ transform: `translateY(${row.start}px)` }}
              >
                <div className="column">
                  {item.kind === "day" && <p className="day">{dayName(item.time, now)}</p>}
                  {item.kind === "mine" && (
                    <MineItem item={item} chatKey={chatKey} writable={writable} onEdit={onEdit} />
                  )}
                  {item.kind === "progress" && <ProgressItem item={item} />}
                  {item.kind === "answer" && (
                    <AnswerItem
                      item={item}
                      chatKey={chatKey}
                      last={writable && item.key === lastAnswer}
                    />
                  )}
                </div>
              </div>
            );
          })}
        </div>
      </section>
      {away && (
        <button type="button" className="jump" onClick={() => rows.scrollToEnd()}>
          <ArrowDown size={15} aria-hidden="true" /> {strings.thread.newest}
        </button>
      )}
    </div>
  );
}

function estimate(item: Item | undefined): number {
  if (!item || !("text" in item)) return 48;
  return 70 + Math.ceil(item.text.length / 80) * 26;
}

/** The item that shows this message, or the one it went into; -1 while it is not here yet. */
function placeOfSeq(items: Item[], seq: number, older: boolean): number {
  const seqs = items.map((item) => ("seq" in item ? item.seq : null));
  const first = seqs.find((one) => one !== null);
  if (first === undefined || (older && first !== null && first > seq)) return -1;
  return seqs.findIndex((one) => one !== null && one >= seq);
}
