import { expect, test } from "vitest";
import { Batcher } from "./batch";

const doubled = (asked: string[][]) =>
  new Batcher<string>(
    async (keys) => {
      asked.push(keys);
      return new Map(keys.filter((key) => key !== "gone").map((key) => [key, key + key]));
    },
    () => "none",
    2,
    0,
  );

test("what is asked at once is asked together, each thing once", async () => {
  const asked: string[][] = [];
  const batcher = doubled(asked);
  const found = await Promise.all(["a", "b", "a", "gone"].map((key) => batcher.get(key)));
  expect(found).toEqual(["aa", "bb", "aa", "none"]);
  expect(asked).toEqual([["a", "b"], ["gone"]]);
});

test("a failure reaches everyone who asked, and the next question is a new one", async () => {
  let broken = true;
  const batcher = new Batcher<number>(
    async (keys) => {
      if (broken) throw new Error("away");
      return new Map(keys.map((key) => [key, 1]));
    },
    () => 0,
    9,
    0,
  );
  const outcomes = await Promise.allSettled([batcher.get("a"), batcher.get("b")]);
  expect(outcomes.map((one) => one.status)).toEqual(["rejected", "rejected"]);
  broken = false;
  expect(await batcher.get("a")).toBe(1);
});
