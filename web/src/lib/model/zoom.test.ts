import { describe, expect, it } from "vitest";
import { NARROWEST, clamp, contains, panned, parseRange, span, toPixel, toTime, widened, zoomed } from "./zoom";

const T = 1.79e18;
const whole = { start: T, end: T + 1e12 };

describe("zooming", () => {
  it("keeps what is under the pointer where it is", () => {
    const at = T + 3e11;
    const near = zoomed(whole, 0.5, at, whole);
    expect(span(near)).toBeCloseTo(5e11, -6);
    expect(toPixel(at, near, 1000)).toBeCloseTo(toPixel(at, whole, 1000), 3);
  });
  it("never leaves the run", () => {
    expect(zoomed(whole, 4, T, whole)).toEqual(whole);
    const right = panned({ start: T + 8e11, end: T + 1e12 }, 5e11, whole);
    expect(right).toEqual({ start: T + 8e11, end: T + 1e12 });
    expect(panned({ start: T, end: T + 1e11 }, -1e11, whole).start).toBe(T);
  });
  it("stops where time cannot be told apart", () => {
    expect(span(zoomed(whole, 1e-12, T + 5e11, whole))).toBeCloseTo(NARROWEST, -3);
    expect(span(clamp({ start: T, end: T }, whole))).toBeGreaterThanOrEqual(NARROWEST - 1000);
  });
  it("has margins inside the whole", () => {
    const wide = widened({ start: T + 1e11, end: T + 3e11 }, 1, whole);
    expect(wide).toEqual({ start: T, end: T + 5e11 });
    expect(contains(whole, wide)).toBe(true);
  });
  it("maps there and back", () => {
    expect(toPixel(toTime(321, whole, 1000), whole, 1000)).toBeCloseTo(321, 3);
  });
  it("reads a range only if it is one", () => {
    expect(parseRange("10", "20")).toEqual({ start: 10, end: 20 });
    for (const [a, b] of [["20", "10"], ["x", "10"], [undefined, "10"], ["", ""]]) {
      expect(parseRange(a, b)).toBeNull();
    }
  });
});
