import { describe, expect, test } from "vitest";
import type { RolledPart, RolledUp } from "../types";
import { isKind, leftOut, loss, partName, shares, since } from "./rollup";
import { DAY } from "./units";

const part: RolledPart = {
  name: "sweep", runs: 2, goodput: 0.75, disruptions: 1, device_hours: { productive: 3, stall: 1, excluded: 5 },
  counted_device_hours: 4, counted_cost: null, largest_loss: "stall",
};

describe("a part", () => {
  test("has shares of what is counted", () => expect(shares(part)).toEqual({ productive: 0.75, stall: 0.25 }));
  test("without time has none", () => expect(shares({ ...part, counted_device_hours: 0 })).toEqual({}));
  test("tells what it lost most by", () => {
    expect(loss(part)).toEqual({ name: "stall", title: "hang or stall", share: "25.0 %" });
    expect(loss({ ...part, largest_loss: "" })).toBeNull();
  });
  test("has a name even where nobody gave one", () => {
    expect(partName(part, "group")).toBe("sweep");
    expect(partName({ ...part, name: "" }, "user")).toBe("no user");
  });
});

test("a span begins so many days ago", () => {
  expect(since("7", 10 * DAY)).toBe(3 * DAY);
  expect(since("all", 10 * DAY)).toBeUndefined();
  expect(since("odd", 30 * DAY)).toBe(2 * DAY);
});

test("only what is known is asked for", () => {
  expect(["group", "user", "week", "moon", undefined].map(isKind)).toEqual([true, true, true, false, false]);
});

test("older runs may be left out", () => {
  expect(leftOut({ runs: [1, 2], total: 5 } as unknown as RolledUp)).toBe(3);
});
