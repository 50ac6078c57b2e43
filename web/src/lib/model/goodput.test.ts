import { describe, expect, test } from "vitest";
import type { Bucket, Disruption, Goodput } from "../types";
import { awaited, barAt, costNs, recoveryWords, stackOrder, toBars } from "./goodput";

const bucket = (start: number, spent: Record<string, number>): Bucket => ({
  start_ns: start,
  end_ns: start + 100,
  goodput: (spent["productive"] ?? 0) / 100,
  spent_ns: spent,
});
const disruption: Disruption = {
  attempt: 1, time_ns: 0, cause: "rank 3 killed", hung: false, lost_steps: 2,
  wasted_ns: 4e9, recovery_ns: 60e9, back_ns: 98e9,
};

describe("bars", () => {
  const bars = toBars([bucket(1000, { stall: 25, productive: 75 }), bucket(1100, { odd: 100 })], ["productive", "stall"]);

  test("are stacked in the given order, unknown classes last, and fill the height", () => {
    expect(bars[0]?.pieces).toEqual([
      { name: "productive", low: 0, high: 0.75, ns: 75 },
      { name: "stall", low: 0.75, high: 1, ns: 25 },
    ]);
    expect(bars[1]?.pieces).toEqual([{ name: "odd", low: 0, high: 1, ns: 100 }]);
  });

  test("lie side by side", () => {
    expect(bars.map((bar) => [bar.left, bar.right])).toEqual([[0, 0.5], [0.5, 1]]);
    expect([barAt(bars, 0), barAt(bars, 0.5), barAt(bars, 1)]).toEqual([0, 1, -1]);
  });

  test("none where there is no time", () => expect(toBars(null, [])).toEqual([]));
});

test("productive time is at the bottom, then the largest", () => {
  const spent = [["a", 5], ["productive", 1], ["b", 9], ["none", 0]].map(([name, ns]) => ({
    name: String(name), ns: Number(ns), share: 0,
  }));
  expect(stackOrder({ spent } as unknown as Goodput)).toEqual(["productive", "b", "a"]);
});

test("a disruption's cost counts work done again and the way back", () => {
  expect(costNs(disruption)).toBe(102e9);
  expect(costNs({ ...disruption, back_ns: null })).toBe(64e9);
  expect(recoveryWords(disruption)).toBe("next attempt after 60 s, stepping after 98 s");
  expect(recoveryWords({ ...disruption, recovery_ns: null })).toBe("no next attempt yet");
});

test("only ranks that were waited for, the worst first", () => {
  const rank = (number: number, ns: number) =>
    ({ rank: number, steps: 1, mean_step_ns: 1, awaited_steps: 1, awaited_ns: ns });
  expect(awaited([rank(0, 0), rank(1, 5), rank(2, 9), rank(3, 1)], 2).map((one) => one.rank)).toEqual([2, 1]);
});
