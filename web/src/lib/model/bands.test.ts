import { describe, expect, it } from "vitest";
import type { Band, SpanList, StepDensity } from "../types";
import { bars, limits, meanAt, padded, stepsAt, stepsIn } from "./bands";

const band: Band = {
  metric: "loss", unit: "1", about: "run", series: 4, start_ns: 1000, width_ns: 10,
  minimum: [1, null, 3, 0.5], maximum: [2, null, 9, 40], mean: [1.5, null, 6, 20],
};

describe("bands", () => {
  it("has its mean at a time, and gaps", () => {
    expect([999, 1000, 1009, 1010, 1025, 1040].map((time) => meanAt(band, time))).toEqual([null, 1.5, 1.5, null, 6, null]);
  });
  it("has room for what is in the range only", () => {
    const { low, high } = limits(band, { start: 1000, end: 1029 });
    expect(low).toBe(0);
    expect(high).toBeGreaterThan(9);
    expect(high).toBeLessThan(12);
  });
  it("has sensible limits for odd cases", () => {
    expect(padded(Infinity, -Infinity, "")).toEqual({ low: 0, high: 1 });
    expect(padded(20, 30, "%")).toEqual({ low: 0, high: 100 });
    expect(padded(5, 5, "")).toEqual({ low: 0, high: 6.25 });
    expect(padded(1000, 1001, "").low).toBeGreaterThan(999);
  });
});

describe("steps", () => {
  const steps: StepDensity = { start_ns: 0, width_ns: 100, bucket: [0, 2], count: [10, 4], mean_seconds: [1, 2], maximum_seconds: [3, 4] };
  it("is counted in a range", () => {
    expect(stepsIn(steps, { start: 0, end: 300 })).toBe(14);
    expect(stepsIn(steps, { start: 50, end: 250 })).toBe(7);
    expect(stepsIn(steps, { start: 100, end: 200 })).toBe(0);
  });
  it("is found at a time", () => {
    expect(stepsAt(steps, 250)).toEqual({ count: 4, mean: 2, most: 4 });
    expect(stepsAt(steps, 150)).toBeNull();
  });
  it("has a row per rank, some of them", () => {
    const told: SpanList = { run: "r", complete: true, name: ["step", "step", "save"], rank: [7, 3, 7], step: [1, 1, null], start_ns: [0, 1, 5], end_ns: [4, 5, null] };
    const found = bars(told, () => 9, 2);
    expect(found.rows).toEqual([3, 7]);
    expect(found.bars.map((bar) => [bar.row, bar.name, bar.start, bar.end])).toEqual([[1, "step", 0, 4], [0, "step", 1, 5], [1, "save", 5, 9]]);
    expect(bars(told, () => 9, 1).bars).toHaveLength(1);
  });
  it("knows useful spans by their plain name", () => {
    const told: SpanList = { run: "r", complete: true, name: ["rollout/useful", "save"], rank: [0, 0], step: [null, null], start_ns: [0, 5], end_ns: [5, 9] };
    expect(bars(told, () => 9, 1).bars.map((bar) => [bar.name, bar.useful])).toEqual([["rollout", true], ["save", false]]);
  });
});
