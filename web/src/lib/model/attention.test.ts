import { expect, test } from "vitest";
import type { Health } from "../types";
import { MOST_SHOWN, needs, title } from "./attention";

const LIMIT = "run 'x' has sent 9 series, and 9 are allowed (run_series in the head's settings): the rest stays on its node";
const aside = (journal: string) => ({ host: "gpu-1", journal, why: "a copy, or forged", version: "1", since_ns: 1.7e18 });

test("a head that is well needs nothing", () => {
  expect(needs({ status: "ok" })).toEqual([]);
  expect(needs({ status: "ok", problem: "", notes: [], aside: [] })).toEqual([]);
});

test("what is wrong comes first, then notes, then journals that are set aside, each with its reason", () => {
  const health: Health = { status: "degraded", problem: "the disk is full", notes: [LIMIT], aside: [aside("j-1")] };
  const found = needs(health);
  expect(found.map((one) => one.what)).toEqual([
    "The head accepts no data: the disk is full",
    LIMIT,
    expect.stringMatching(/^Journal j-1 of host gpu-1 is set aside since .*: a copy, or forged$/),
  ]);
  expect(found[1]?.todo).toContain("Raise that setting");
});

test("a journal that waits for a limit tells of the limit", () => {
  const [found] = needs({ status: "ok", aside: [{ ...aside("j-1"), why: LIMIT }] });
  expect(found?.todo).toContain("Raise that setting");
});

test("of very many it says how many more there are", () => {
  const many = Array.from({ length: MOST_SHOWN + 7 }, (_, number) => aside(`j-${number}`));
  const found = needs({ status: "ok", aside: many });
  expect(found.length).toBe(MOST_SHOWN + 1);
  expect(found.at(-1)?.what).toBe("7 more");
});

test("one thing is not things", () => {
  expect(title(1)).toBe("Needs attention: 1 thing");
  expect(title(3)).toBe("Needs attention: 3 things");
});
