import { describe, expect, it } from "vitest";
import { ago, localTimes, moment, timeOfDay, timeTicks, valueTicks, zone } from "./ticks";
import { HOUR, MINUTE, SECOND } from "./units";

const T = Date.parse("2026-11-15T10:43:06.687Z") * 1e6;

describe("times in sentences", () => {
  it("are in the reader's zone, which is named", () => {
    const ns = Date.parse("2026-11-15T10:43:06Z") * 1e6;
    expect(localTimes("killed at 2026-11-15T10:43:06Z on host a")).toBe(`killed at ${moment(ns)} ${zone(ns)} on host a`);
    expect(zone(ns)).not.toBe("");
  });
  it.each(["", "no time", "2026-99-99T10:43:06Z", "2026-11-15T10:43:06.123456789Z"])("leave %s alone", (text) =>
    expect(localTimes(text)).toBe(text));
});

describe("time axis", () => {
  it.each([2e5, 3e6, 4e7, 9e8, 11e9, 4e11, 5e13, 9e15, 3e17])("has few marks, in order, inside, over %d ns", (width) => {
    const range = { start: T, end: T + width };
    const ticks = timeTicks(range, 8);
    expect(ticks.length).toBeGreaterThan(0);
    expect(ticks.length).toBeLessThanOrEqual(9);
    for (const tick of ticks) {
      expect(tick.at).toBeGreaterThanOrEqual(range.start);
      expect(tick.at).toBeLessThanOrEqual(range.end);
    }
    expect(new Set(ticks.map((tick) => tick.text)).size).toBe(ticks.length);
  });
  it("says seconds where they differ", () => {
    expect(timeTicks({ start: T, end: T + 11 * SECOND }, 6)[0]?.text).toMatch(/^\d\d:\d\d:08$/);
    expect(timeTicks({ start: T, end: T + 3 * HOUR }, 6)[0]?.text).toMatch(/^\d\d:\d0$/);
  });
});

describe("moments", () => {
  it("is as exact as the stretch around it", () => {
    expect(moment(T)).toMatch(/^15 Nov 2026 \d\d:\d\d:06$/);
    expect(moment(T, MINUTE)).toMatch(/:06\.687$/);
    expect(timeOfDay(T)).toMatch(/^\d\d:\d\d:06$/);
  });
  it("tells how long ago", () => {
    expect(ago(T, T + SECOND)).toBe("just now");
    expect(ago(T, T + 42 * SECOND)).toBe("42 s ago");
    expect(ago(T, T + 5.2 * MINUTE)).toBe("5 min ago");
    expect(ago(T, T + 400 * 24 * HOUR)).toBe("15 Nov 2026");
  });
});

describe("value axis", () => {
  it("has round marks", () => {
    expect(valueTicks(0, 1, 4)).toEqual([0, 0.5, 1]);
    expect(valueTicks(-3, 12, 3)).toEqual([0, 5, 10]);
    expect(valueTicks(5, 5, 3)).toEqual([5]);
    expect(valueTicks(NaN, 1, 3)).toEqual([]);
  });
});
