import { describe, expect, it } from "vitest";
import type { Curve } from "../types";
import { sentence, totals } from "./blame";

const curve = (rank: number, mean: (number | null)[], count: number[]): Curve => ({
  series: rank, label: "", metric: "data_wait_seconds", unit: "s", rank, host: "vm", device: "", attempt: 1, width: 1,
  position: [], time_ns: [], first: [], last: [], minimum: [], maximum: [], mean, count, nonfinite: [],
});

describe("who was waited for", () => {
  it("adds up attempts and leaves out gaps", () => {
    expect(totals([curve(0, [1, null], [2, 0]), curve(1, [5], [1]), curve(0, [1], [1])])).toEqual([
      { rank: 1, host: "vm", seconds: 5 },
      { rank: 0, host: "vm", seconds: 3 },
    ]);
  });
  it("names a rank that stands out, and only then", () => {
    const sums = totals([curve(0, [0.1], [1]), curve(1, [0.08], [1]), curve(2, [3.3], [1])]);
    expect(sentence(sums, "waited for data for")).toBe("Rank 2 on vm waited for data for 3.3 s, the others 100 ms.");
    expect(sentence(totals([curve(0, [1], [1]), curve(1, [1.2], [1])]), "waited")).toBe("All ranks waited about the same time: 1 s to 1.2 s.");
    expect(sentence(totals([curve(0, [1], [1])]), "waited")).toBe("Rank 0 waited 1 s.");
    expect(sentence([], "waited")).toBe("");
  });
});
