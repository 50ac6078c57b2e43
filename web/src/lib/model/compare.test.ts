import { describe, expect, it } from "vitest";
import type { Configs, Curve } from "../types";
import { common, drawings, settings } from "./compare";

const config = (user: Configs["user"]): Configs => ({ run: "r", user, software: { python: "3.11" }, system: {} });

describe("settings", () => {
  it("tells what differs, and what only some have", () => {
    const found = settings([config({ lr: 0.1, model: { depth: 2 } }), config({ lr: 0.2, model: { depth: 2 }, extra: true })]);
    expect(found.filter((one) => one.differs).map((one) => [one.path, one.values])).toEqual([
      ["extra", [undefined, "true"]],
      ["lr", ["0.1", "0.2"]],
    ]);
    expect(found.find((one) => one.path === "model.depth")?.differs).toBe(false);
  });
  it("does not count a run whose settings are not known", () => {
    expect(settings([config({ lr: 1 }), null]).every((one) => !one.differs)).toBe(true);
  });
});

const curve = (rank: number, attempt: number, mean: number[]): Curve => ({
  series: rank, label: "", metric: "loss", unit: "", rank, host: "h", device: "", attempt, width: 1,
  position: mean.map((_, at) => at), time_ns: mean.map((_, at) => 1e9 * (at + 10)), first: mean, last: mean,
  minimum: mean, maximum: mean, mean, count: mean.map(() => 1), nonfinite: mean.map(() => 0),
});

describe("drawings", () => {
  it("draws the lowest rank, each attempt, the raw line behind the smooth one", () => {
    const curves = [curve(3, 1, [9]), curve(0, 1, [4, 2]), curve(0, 2, [1, 3])];
    const found = drawings(curves, "a", "#123", "step", 0, 0.5, false);
    expect(found.map((one) => [one.label, Boolean(one.faint)])).toEqual([
      ["a", true], ["a", false], ["a (attempt 2)", true], ["a (attempt 2)", false],
    ]);
    expect(found[0]?.y).toEqual([4, 2]);
    expect(found[1]?.y[1]).toBeCloseTo(8 / 3, 9);
    expect(drawings(curves, "a", "#123", "relative", 9e9, 0, false)[0]?.x).toEqual([1, 2]);
  });
  it("has nothing below zero on a logarithmic axis", () => {
    expect(drawings([curve(0, 1, [-1, 2])], "a", "#123", "step", 0, 0, true)[0]?.y).toEqual([null, 2]);
  });
  it("draws nothing of nothing", () => expect(drawings([], "a", "#123", "step", 0, 0, false)).toEqual([]));
});

describe("common metrics", () => {
  it("has those of most runs first, and losses before others", () => {
    expect(common([["lr", "loss", "x"], ["loss", "accuracy", "lr"], ["loss"]])).toEqual(["loss", "lr", "accuracy", "x"]);
  });

  it("has those of the whole model before those of its layers", () => {
    expect(common([["layer_0/norm", "lr", "loss"]])).toEqual(["loss", "lr", "layer_0/norm"]);
  });
});
