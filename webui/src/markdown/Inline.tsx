/** The text of one paragraph, heading or cell as React elements. */

import type { Token } from "markdown-it";
import { createContext, Fragment, memo, type ReactNode, useContext, useMemo } from "react";
import { Formula } from "./Formula";
import { ownMedia, safeLink } from "./links";
import { type Leaf, parseInline, type References } from "./tree";

export const ReferencesContext = createContext<References>({});

const NONE: References = {};
/** Thousands of marks inside each other would overflow the stack of the browser. */
const MAX_DEPTH = 30;
const TAGS: Record<string, "em" | "strong" | "s"> = { em: "em", strong: "strong", s: "s" };

export const Inline = memo(function Inline({ source, open }: Leaf) {
  const all = useContext(ReferencesContext);
  const references = source.includes("[") ? all : NONE;
  return useMemo(() => {
    const tokens = parseInline({ source, open }, references);
    return <>{new Drawing(tokens).until(0, false)}</>;
  }, [source, open, references]);
});

class Drawing {
  private at = 0;

  constructor(private readonly tokens: Token[]) {}

  /** Draws up to the token that closes what was opened; at depth 0 the whole text. */
  until(depth: number, inLink: boolean): ReactNode[] {
    const nodes: ReactNode[] = [];
    let passedOver = 0;
    for (let token = this.next(); token; token = this.next()) {
      if (token.nesting < 0) {
        if (passedOver === 0 && depth > 0) break;
        passedOver -= 1;
      } else if (token.nesting > 0 && depth >= MAX_DEPTH) {
        passedOver += 1;
      } else {
        append(nodes, this.node(token, depth, inLink, nodes.length));
      }
    }
    return nodes;
  }

  private next(): Token | undefined {
    const token = this.tokens[this.at];
    this.at += 1;
    return token;
  }

  private node(token: Token, depth: number, inLink: boolean, key: number): ReactNode {
    switch (token.type) {
      case "softbreak":
      case "hardbreak":
        return <br key={key} />;
      case "code_inline":
        return <code key={key}>{token.content}</code>;
      case "math":
        return (
          <Formula
            key={key}
            source={token.content}
            markup={token.markup}
            display={token.meta?.display === true}
            open={token.meta?.open === true}
          />
        );
      case "image":
        return image(token, inLink, key);
      default:
        return token.nesting > 0 ? this.span(token, depth, inLink, key) : token.content;
    }
  }

  private span(token: Token, depth: number, inLink: boolean, key: number): ReactNode {
    const children = this.until(depth + 1, inLink || token.type === "link_open");
    if (token.type === "link_open") {
      return link(attribute(token, "href"), children, key, attribute(token, "title"));
    }
    const Tag = TAGS[token.tag];
    return Tag ? <Tag key={key}>{children}</Tag> : <Fragment key={key}>{children}</Fragment>;
  }
}

function append(nodes: ReactNode[], node: ReactNode): void {
  const last = nodes.at(-1);
  if (typeof node === "string" && typeof last === "string") nodes[nodes.length - 1] = last + node;
  else nodes.push(node);
}

function link(href: string, children: ReactNode, key: number, title = ""): ReactNode {
  if (!safeLink(href)) return <Fragment key={key}>{children}</Fragment>;
  const outside = href.startsWith("#")
    ? {}
    : { target: "_blank", rel: "noopener noreferrer nofollow" };
  return (
    <a key={key} href={href} title={title || undefined} {...outside}>
      {children}
    </a>
  );
}

function image(token: Token, inLink: boolean, key: number): ReactNode {
  const address = attribute(token, "src");
  const name = plainText(token.children ?? []);
  if (ownMedia(address)) {
    return <img key={key} src={address} alt={name} loading="lazy" decoding="async" />;
  }
  return inLink ? name : link(address, name || address, key);
}

function attribute(token: Token, name: string): string {
  return String(token.attrGet(name) ?? "");
}

function plainText(tokens: Token[]): string {
  return tokens
    .map((token) => (token.children ? plainText(token.children) : token.content))
    .join("");
}
