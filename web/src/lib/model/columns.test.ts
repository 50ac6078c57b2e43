import { describe, expect, it } from "vitest";
import { accountOf, columns, pieceAt, stretches, toPieces, type Pieces } from "./columns";

const exact: Pieces = {
  classes: ["productive", "data_loading", "stall"],
  start: [0, 100, 200, 205],
  end: [100, 200, 205, 400],
  main: [0, 1, 2, 0],
  spent: [],
};
const whole = { start: 0, end: 400 };

describe("columns", () => {
  it("is solid where one class fills the pixels", () => {
    const found = columns(exact, whole, 400);
    expect(found.map(({ x, width, parts }) => [x, width, parts[0]?.name])).toEqual([
      [0, 100, "productive"], [100, 100, "data_loading"], [200, 5, "stall"], [205, 195, "productive"],
    ]);
  });
  it("keeps the share of what is shorter than a pixel", () => {
    const found = columns(exact, whole, 4);
    const last = found.find((one) => one.x === 2);
    expect(last?.parts.map((part) => part.name)).toEqual(["productive", "stall"]);
    expect(last?.parts[1]?.share).toBeCloseTo(0.05, 9);
  });
  it("loses nothing at any width", () => {
    for (const width of [1, 3, 7, 50, 333]) {
      const sums: Record<string, number> = {};
      for (const one of columns(exact, whole, width)) {
        for (const { name, share } of one.parts) sums[name] = (sums[name] ?? 0) + (share * one.width * 400) / width;
      }
      expect(sums.productive).toBeCloseTo(295, -1);
      expect(Object.values(sums).reduce((a, b) => a + b)).toBeCloseTo(400, 6);
    }
  });
  it("uses what a merged piece is made of", () => {
    const merged = { ...exact, start: [0], end: [400], main: [0], spent: [[300, 60, 40]] };
    expect(columns(merged, whole, 1)[0]?.parts.map((part) => part.share)).toEqual([0.75, 0.15, 0.1]);
  });
  it("leaves out what is not in the range, and gaps", () => {
    expect(columns(exact, { start: 400, end: 500 }, 10)).toEqual([]);
    expect(columns(toPieces(null), whole, 10)).toEqual([]);
  });
});

describe("pieces", () => {
  it("finds the one at a time", () => {
    expect([-1, 0, 150, 200, 399, 400].map((time) => pieceAt(exact, time))).toEqual([-1, 0, 1, 2, 3, -1]);
  });
});

describe("stretches", () => {
  it("joins what belongs together and leaves out the trifles", () => {
    const start: number[] = [], end: number[] = [], main: number[] = [];
    for (let at = 0; at < 100; at += 1) {
      const slow = at >= 30 && at < 50;
      const middle = at * 10 + (slow ? 2 : 9.9);
      start.push(at * 10, middle);
      end.push(middle, at * 10 + 10);
      main.push(0, 1);
    }
    const found = stretches({ classes: ["productive", "data_loading"], start, end, main, spent: [] }, { start: 0, end: 1000 }, 5);
    expect(found).toHaveLength(1);
    expect(found[0]).toMatchObject({ name: "data_loading", start: 302, end: 500 });
    expect(found[0]?.ns).toBeCloseTo(160, 0);
  });
  it("counts only what is in the range", () => {
    const found = stretches(exact, { start: 150, end: 400 }, 5);
    expect(found.map((one) => [one.name, one.start, one.end, Math.round(one.ns)])).toEqual([
      ["data_loading", 150, 200, 50], ["stall", 200, 205, 5],
    ]);
  });
  it("comes to an end at the size of real times, wherever the edges fall", () => {
    const T = 1.794739386686841879e18;
    for (let width = 1; width < 200; width += 1) {
      const start = Array.from({ length: 40 }, (_, at) => T + at * 1e8 * width);
      const real = { classes: ["productive", "stall"], start, end: start.map((one) => one + 1e8 * width), main: start.map((_, at) => at % 2), spent: [] };
      const range = { start: T + 12345 * width, end: T + 37e8 * width + 991 };
      const sum = stretches(real, range, 100).reduce((all, one) => all + one.ns, 0);
      expect(sum / (range.end - range.start)).toBeCloseTo(0.49, 1);
    }
  });
  it("works on merged pieces, and tells the largest", () => {
    const merged = { classes: exact.classes, start: [0, 100], end: [100, 200], main: [0, 1], spent: [[98, 2, 0], [10, 60, 30]] };
    const found = stretches(merged, { start: 0, end: 200 }, 1);
    expect(found).toHaveLength(1);
    expect(found[0]).toMatchObject({ name: "data_loading", start: 100, end: 200 });
    expect(found[0]?.ns).toBeCloseTo(60, 6);
  });
});

describe("the account of a range", () => {
  it("counts what is inside, productive first", () => {
    expect(accountOf(exact, { start: 50, end: 300 })).toEqual([["productive", 145], ["data_loading", 100], ["stall", 5]]);
    expect(accountOf({ ...exact, start: [0], end: [400], main: [0], spent: [[300, 60, 40]] }, { start: 0, end: 200 })).toEqual([["productive", 150], ["data_loading", 30], ["stall", 20]]);
  });
});
