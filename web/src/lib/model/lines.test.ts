import { describe, expect, test } from "vitest";
import type { Curve } from "../types";
import { aligned, parseAlong, positive, sameCurves, smoothed, extremes, stretchesOf, toLines } from "./lines";

const curve = (changed: Partial<Curve> = {}): Curve => ({
  series: 1, label: "", metric: "loss", unit: "", rank: 0, host: "a", device: "", attempt: 1, width: 1,
  position: [10, 11], time_ns: [5e9, 7e9], first: [3, 2], last: [3, 2], minimum: [3, 2], maximum: [3, 2],
  mean: [3, 2], count: [1, 1], nonfinite: [0, 0], ...changed,
});

describe("lines", () => {
  test("lie along steps, seconds since the start, or the clock", () => {
    expect(toLines([curve()], "step", 1e9)[0]?.x).toEqual([10, 11]);
    expect(toLines([curve()], "relative", 1e9)[0]?.x).toEqual([4, 6]);
    expect(toLines([curve()], "wall", 1e9)[0]?.x).toEqual([5, 7]);
  });

  test("are told apart only by what differs", () => {
    expect(toLines([curve()], "step", 0).map((line) => line.label)).toEqual([""]);
    const both = [curve(), curve({ rank: 3 }), curve({ rank: 3, attempt: 2 })];
    expect(toLines(both, "step", 0).map((line) => line.label)).toEqual([
      "rank 0, attempt 1", "rank 3, attempt 1", "rank 3, attempt 2",
    ]);
    expect(toLines(both, "step", 0).map((line) => line.group)).toEqual(["0 a ", "3 a ", "3 a "]);
  });

  test("have a gap where a value is no number, and count it", () => {
    const [line] = toLines([curve({ mean: ["NaN", 2], nonfinite: [1, 0] })], "step", 0);
    expect(line?.y).toEqual([null, 2]);
    expect(line?.nonfinite).toBe(1);
  });
});

describe("smoothing", () => {
  test("begins at the first value and keeps a constant", () => {
    expect(smoothed([4, 4, 4], 0.9).map((y) => Number(y?.toFixed(9)))).toEqual([4, 4, 4]);
  });
  test("weighs the past", () => expect(smoothed([0, 1], 0.5)[1]).toBeCloseTo(2 / 3));
  test("keeps gaps and goes on after them", () => expect(smoothed([2, null, 2], 0.5)).toEqual([2, null, 2]));
});

test("a logarithm needs positive values", () => expect(positive([1, 0, -1, null])).toEqual([1, null, null, null]));

test("lines share one x and leave out what they have not", () => {
  const data = aligned([{ x: [1, 3], y: [10, null] }, { x: [2, 3], y: [20, 30] }]);
  expect(data).toEqual([[1, 2, 3], [10, undefined, null], [undefined, 20, 30]]);
});

test("only what changed is drawn again", () => {
  expect(sameCurves(null, [curve()])).toBe(false);
  expect(sameCurves([curve()], [curve()])).toBe(true);
  expect(sameCurves([curve()], [curve({ last: [3, 1] })])).toBe(false);
  expect(sameCurves([curve()], [curve({ position: [10, 12] })])).toBe(false);
  expect(sameCurves([curve()], [curve(), curve()])).toBe(false);
});

test("an axis that nobody knows is steps", () => expect([parseAlong("wall"), parseAlong("x")]).toEqual(["wall", "step"]));

test("of many values the highest and the lowest are told", () => {
  const read = [3, 9, 1, 5].map((value) => ({ label: `rank ${value}`, colour: "", value }));
  expect(extremes(read).map((one) => one.value)).toEqual([9, 1]);
  expect(extremes(read.slice(0, 2)).map((one) => one.value)).toEqual([3, 9]);
});

test("says where values are not finite", () => {
  expect(toLines([curve({ nonfinite: [0, 3], mean: [3, null] })], "step", 0)[0]).toMatchObject({ nonfinite: 3, bad: [11], y: [3, null] });
  expect(stretchesOf([5, 1, 2, 9, 3], 2)).toEqual([[1, 5], [9, 9]]);
  expect(stretchesOf([], 2)).toEqual([]);
});
