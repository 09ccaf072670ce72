import "katex/dist/katex.min.css";
import katex, { type KatexOptions } from "katex";

/** False if the source is not a formula; the node is then empty. */
export function draw(source: string, node: HTMLElement, options: KatexOptions): boolean {
  try {
    katex.render(source, node, options);
    return true;
  } catch {
    node.replaceChildren();
    return false;
  }
}
