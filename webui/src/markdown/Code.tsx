import { Check, Copy as CopyIcon } from "lucide-react";
import { memo, type ReactNode, useEffect, useRef, useState } from "react";
import { strings } from "../strings";
import { lazyModule } from "./lazy";

export const highlighter = lazyModule(() => import("./highlight"));

/** Larger blocks stay plain: colouring them would hold up typing. */
const MAX_HIGHLIGHTED = 30_000;

/** Lines per piece of a large block, so that a new line lays out one piece and not all of them. */
const PIECE_LINES = 200;

type Props = { text: string; language: string; open: boolean };

export function Code({ text, language, open }: Props) {
  return (
    <div className="md-code" dir="ltr">
      <div className="md-code-bar">
        <span>{language || strings.markdown.code}</span>
        <Copy text={text} />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard. */}
      <pre tabIndex={0}>
        <code>{text.length > MAX_HIGHLIGHTED ? pieces(text) : colours(text, language, open)}</code>
      </pre>
    </div>
  );
}

function colours(text: string, language: string, open: boolean): ReactNode {
  const cut = open ? settledLength(text) : text.length;
  return (
    <>
      <Coloured text={text.slice(0, cut)} language={language} />
      {cut < text.length ? <Coloured text={text.slice(cut)} language={language} /> : null}
    </>
  );
}

const Coloured = memo(function Coloured({ text, language }: { text: string; language: string }) {
  const module = highlighter.use(language !== "");
  return module && language ? module.highlight(text, language) : text;
});

/**
 * Of a growing block the head is coloured only when a sixteenth was added, the rest each time: the
 * work per new character stays small, and the colours at the end may be those of a fresh start.
 */
function settledLength(text: string): number {
  if (text.length < 2000) return text.length;
  const step = 2 ** Math.floor(Math.log2(text.length / 16));
  return text.lastIndexOf("\n", Math.floor(text.length / step) * step - 1) + 1;
}

function pieces(text: string): ReactNode[] {
  const lines = text.split("\n");
  const nodes: ReactNode[] = [];
  for (let at = 0; at < lines.length; at += PIECE_LINES) {
    const part = lines.slice(at, at + PIECE_LINES).join("\n");
    nodes.push(
      <span key={at} className="md-piece">
        {at + PIECE_LINES < lines.length ? `${part}\n` : part}
      </span>,
    );
  }
  return nodes;
}

function Copy({ text }: { text: string }) {
  const [state, setState] = useState<"copy" | "copied" | "copyFailed">("copy");
  const timer = useRef(0);
  useEffect(() => () => window.clearTimeout(timer.current), []);

  const copy = async () => {
    setState((await toClipboard(text)) ? "copied" : "copyFailed");
    window.clearTimeout(timer.current);
    timer.current = window.setTimeout(() => setState("copy"), 2000);
  };
  return (
    <button type="button" className="md-copy" onClick={copy} aria-live="polite">
      {state === "copied" ? <Check size={14} /> : <CopyIcon size={14} />}
      {strings.markdown[state]}
    </button>
  );
}

/** Over plain HTTP from another machine there is no `navigator.clipboard`. */
async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

function copyBySelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.className = "md-clipboard";
  area.value = text;
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return copied;
}
