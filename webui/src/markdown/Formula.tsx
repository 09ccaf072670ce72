import type { KatexOptions } from "katex";
import { useLayoutEffect, useRef, useState } from "react";
import { strings } from "../strings";
import { lazyModule } from "./lazy";

export const katex = lazyModule(() => import("./typeset"));

/** Bounds for what a message can make KaTeX do; with `trust` off it makes no links and no images. */
export const KATEX_OPTIONS: KatexOptions = {
  throwOnError: true,
  trust: false,
  strict: "ignore",
  errorColor: "currentColor",
  maxSize: 20,
  maxExpand: 300,
};

const MAX_SOURCE = 5000;

type Props = { source: string; markup: string; display: boolean; open: boolean };

/** A formula; its source while it is incomplete, while KaTeX loads, and if KaTeX refuses it. */
export function Formula({ source, markup, display, open }: Props) {
  const wanted = !open && source.length <= MAX_SOURCE;
  const typeset = katex.use(wanted);
  const target = useRef<HTMLSpanElement>(null);
  const [drawn, setDrawn] = useState(false);

  useLayoutEffect(() => {
    const node = target.current;
    if (!node || !typeset) return;
    setDrawn(wanted && typeset.draw(source, node, { ...KATEX_OPTIONS, displayMode: display }));
  }, [typeset, wanted, source, display]);

  const box = display ? { role: "group", tabIndex: 0, "aria-label": strings.markdown.formula } : {};
  return (
    <span className={display ? "md-math md-math-display" : "md-math"} dir="ltr" {...box}>
      <span ref={target} hidden={!drawn} />
      {drawn ? null : <code>{markup}</code>}
    </span>
  );
}
