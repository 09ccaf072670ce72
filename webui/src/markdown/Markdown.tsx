/** An answer as it is written: of a growing text only the parts that changed are drawn again. */

import { memo, type ReactNode, useState } from "react";
import "./markdown.css";
import { strings } from "../strings";
import { Code } from "./Code";
import { Formula } from "./Formula";
import { Inline, ReferencesContext } from "./Inline";
import { createReader } from "./reader";
import type { Align, Block, Item } from "./tree";

type Props = { text: string; streaming?: boolean };

export const Markdown = memo(function Markdown({ text, streaming = false }: Props) {
  // What the reader remembers saves work and never shows: its answer depends on the text alone.
  const [read] = useState(createReader);
  const { blocks, references } = read(text, streaming);
  return (
    <ReferencesContext value={references}>
      <div className="md">
        {blocks.map((block, index) => (
          <Drawn key={index} block={block} dir="auto" />
        ))}
      </div>
    </ReferencesContext>
  );
});

/** Only outermost blocks have a direction of their own: `dir="auto"` looks past nested ones. */
type DrawnProps = { block: Block; dir?: "auto" | undefined };

const Drawn = memo(function Drawn({ block, dir }: DrawnProps): ReactNode {
  switch (block.kind) {
    case "paragraph": {
      const text = <Inline source={block.source} open={block.open} />;
      return block.tight ? text : <p dir={dir}>{text}</p>;
    }
    case "heading":
      return <Heading block={block} dir={dir} />;
    case "code":
      return <Code text={block.text} language={block.language} open={block.open} />;
    case "math":
      return <Formula source={block.source} markup={block.markup} display open={block.open} />;
    case "rule":
      return <hr />;
    case "quote":
      return <blockquote dir={dir}>{block.children.map(child)}</blockquote>;
    case "list":
      return <List block={block} dir={dir} />;
    case "table":
      return <Table block={block} dir={dir} />;
  }
});

function child(block: Block, index: number): ReactNode {
  return <Drawn key={index} block={block} />;
}

type Of<Kind extends Block["kind"]> = {
  block: Extract<Block, { kind: Kind }>;
  dir?: "auto" | undefined;
};

/** The page has its own first and second level; only the look follows the level in the text. */
function Heading({ block, dir }: Of<"heading">) {
  const Tag = `h${Math.min(6, block.level + 2)}` as "h3" | "h4" | "h5" | "h6";
  return (
    <Tag className={`md-h${block.level}`} dir={dir}>
      <Inline source={block.source} open={block.open} />
    </Tag>
  );
}

function List({ block, dir }: Of<"list">) {
  const items = block.children.map((item, index) => <ListItem key={index} item={item} />);
  if (!block.ordered) return <ul dir={dir}>{items}</ul>;
  return (
    <ol dir={dir} start={block.start === 1 ? undefined : block.start}>
      {items}
    </ol>
  );
}

const ListItem = memo(function ListItem({ item }: { item: Item }) {
  if (item.checked === null) return <li>{item.children.map(child)}</li>;
  return (
    <li className="md-task">
      <input
        type="checkbox"
        checked={item.checked}
        disabled
        aria-label={item.checked ? strings.markdown.done : strings.markdown.toDo}
      />
      {item.children.map(child)}
    </li>
  );
});

function Table({ block, dir }: Of<"table">) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard.
    // biome-ignore lint/a11y/useSemanticElements: a table is not a group of form fields.
    <div className="md-table" aria-label={strings.markdown.table} role="group" tabIndex={0}>
      <table dir={dir}>
        <thead>
          <Row cells={block.head} align={block.align} cell="th" />
        </thead>
        <tbody>
          {block.rows.map((cells, index) => (
            <Row key={index} cells={cells} align={block.align} cell="td" />
          ))}
        </tbody>
      </table>
    </div>
  );
}

type RowProps = { cells: string[]; align: Align[]; cell: "th" | "td" };

const Row = memo(function Row({ cells, align, cell: Cell }: RowProps) {
  return (
    <tr>
      {cells.map((source, index) => (
        <Cell key={index} className={align[index] ? `md-${align[index]}` : undefined}>
          <Inline source={source} open={false} />
        </Cell>
      ))}
    </tr>
  );
});
