/** Fetched when the first block of code with a known language is drawn. */

import type { RootContent } from "hast";
import { common, createLowlight } from "lowlight";
import { createElement, type ReactNode } from "react";

const lowlight = createLowlight(common);

export function highlight(code: string, language: string): ReactNode {
  if (!lowlight.registered(language)) return code;
  return lowlight.highlight(language, code).children.map(element);
}

function element(node: RootContent, key: number): ReactNode {
  if (node.type === "text") return node.value;
  if (node.type !== "element") return null;
  const names = node.properties.className;
  const className = Array.isArray(names) ? names.join(" ") : undefined;
  return createElement("span", { key, className }, ...node.children.map(element));
}
