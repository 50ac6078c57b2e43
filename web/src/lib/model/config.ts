// A configuration as a tree that can be searched, and two of them side by side.

import type { Configs, JsonObject } from "../types";

export interface Node {
  key: string;
  path: string;
  /** Undefined for a branch. */
  value?: unknown;
  children: Node[];
}

export const PARTS = ["user", "software", "system"] as const;
export type Part = (typeof PARTS)[number];

const isBranch = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value) && Object.keys(value).length > 0;

export function toTree(values: JsonObject, above = ""): Node[] {
  return Object.entries(values).map(([key, value]) => {
    const path = above ? `${above}.${key}` : key;
    return isBranch(value) ? { key, path, children: toTree(value, path) } : { key, path, value, children: [] };
  });
}

export function written(value: unknown): string {
  if (value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** The leaves whose path or value matches, with their branches. */
export function matchingNodes(nodes: readonly Node[], search: string): Node[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return words.length ? nodes.flatMap((node) => pruned(node, words)) : [...nodes];
}

function pruned(node: Node, words: readonly string[]): Node[] {
  if (node.children.length) {
    const children = node.children.flatMap((child) => pruned(child, words));
    return children.length ? [{ ...node, children }] : [];
  }
  const text = `${node.path} ${written(node.value)}`.toLowerCase();
  return words.every((word) => text.includes(word)) ? [node] : [];
}

export const leaves = (nodes: readonly Node[]): Node[] =>
  nodes.flatMap((node) => (node.children.length ? leaves(node.children) : [node]));

export interface Difference {
  part: Part;
  path: string;
  kind: "same" | "changed" | "only here" | "only there";
  here: string;
  there: string;
}

export function compared(here: Configs, there: Configs): Difference[] {
  return PARTS.flatMap((part) => {
    const [left, right] = [byPath(here[part]), byPath(there[part])];
    return [...new Set([...left.keys(), ...right.keys()])].map((path) => {
      const [a, b] = [left.get(path), right.get(path)];
      const kind = a === undefined ? "only there" : b === undefined ? "only here" : a === b ? "same" : "changed";
      return { part, path, kind, here: a ?? "", there: b ?? "" } as const;
    });
  });
}

const byPath = (values: JsonObject): Map<string, string> =>
  new Map(leaves(toTree(values)).map((leaf) => [leaf.path, written(leaf.value)]));

export function matchingDifferences(all: readonly Difference[], search: string): Difference[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return all.filter((one) => {
    const text = `${one.path} ${one.here} ${one.there}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
}
