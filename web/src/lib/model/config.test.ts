import { describe, expect, test } from "vitest";
import type { Configs } from "../types";
import { compared, leaves, matchingDifferences, matchingNodes, toTree, written } from "./config";

const values = { optimizer: { name: "adamw", betas: [0.9, 0.95] }, steps: 10, empty: {} };
const configs = (user: Configs["user"]): Configs => ({ run: "r", user, software: {}, system: {} });

describe("a tree", () => {
  test("has branches for objects and leaves for all else", () => {
    const tree = toTree(values);
    expect(tree.map((node) => [node.key, node.children.length])).toEqual([["optimizer", 2], ["steps", 0], ["empty", 0]]);
    expect(leaves(tree).map((leaf) => leaf.path)).toEqual(["optimizer.name", "optimizer.betas", "steps", "empty"]);
  });

  test("is searched by path and by value, keeping the way there", () => {
    expect(leaves(matchingNodes(toTree(values), "ADAM")).map((leaf) => leaf.path)).toEqual(["optimizer.name"]);
    expect(leaves(matchingNodes(toTree(values), "optimizer 0.95")).map((leaf) => leaf.path)).toEqual(["optimizer.betas"]);
    expect(matchingNodes(toTree(values), "nothing")).toEqual([]);
    expect(matchingNodes(toTree(values), " ").length).toBe(3);
  });
});

test("values are written as one would type them", () => {
  expect([written("x"), written(0.1), written([1]), written(null), written({})]).toEqual(["x", "0.1", "[1]", "null", "{}"]);
});

describe("two configurations", () => {
  const all = compared(configs({ a: { b: 1 }, c: 2, only: true }), configs({ a: { b: 1 }, c: 3, other: "x" }));

  test("are compared leaf by leaf", () => {
    expect(all.map((one) => [one.path, one.kind])).toEqual([
      ["a.b", "same"], ["c", "changed"], ["only", "only here"], ["other", "only there"],
    ]);
    expect(all[1]).toMatchObject({ here: "2", there: "3", part: "user" });
  });

  test("a leaf here may be a branch there", () => {
    const kinds = compared(configs({ a: 1 }), configs({ a: { b: 1 } })).map((one) => [one.path, one.kind]);
    expect(kinds).toEqual([["a", "only here"], ["a.b", "only there"]]);
  });

  test("are searched on either side", () => {
    expect(matchingDifferences(all, "3").map((one) => one.path)).toEqual(["c"]);
    expect(matchingDifferences(all, "x other").map((one) => one.path)).toEqual(["other"]);
  });
});
