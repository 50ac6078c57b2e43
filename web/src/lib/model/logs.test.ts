import { describe, expect, it } from "vitest";
import type { LogEntry } from "../types";
import { echoed, marked, merged, rowAt, rowsOf, visible } from "./logs";

const entry = (time: number, text = `line ${time}`, more: Partial<LogEntry> = {}): LogEntry => ({
  id: `j:${time}:out:0`, time_ns: time, rank: 0, host: "h", attempt: 1, step: null, source: "out", text,
  left_out_lines: 0, left_out_bytes: 0, exception: null, ...more,
});
const told = { type: "ValueError", message: "no", text: "Traceback\n  here\nValueError: no", thread: "MainThread", frames: [], left_out_frames: 0, local_variables: [] };

describe("merged", () => {
  it("has each entry once, in order of time", () => {
    const all = merged([entry(1), entry(3)], [entry(3), entry(2), entry(4)]);
    expect(all.map((one) => one.time_ns)).toEqual([1, 2, 3, 4]);
  });
  it("is the same object if nothing is new", () => {
    const held = [entry(1)];
    expect(merged(held, [entry(1)])).toBe(held);
  });
});

describe("rowsOf", () => {
  it("shows gaps before their line, and a gap without a line alone", () => {
    const rows = rowsOf([entry(1, "x", { left_out_lines: 2000, left_out_bytes: 5000 }), entry(2, "", { left_out_lines: 1, left_out_bytes: 5 })], new Set());
    expect(rows.map((row) => [row.kind, row.text])).toEqual([
      ["gap", "2,000 lines (4.88 KiB) left out: more than is recorded"],
      ["line", "x"],
      ["gap", "1 line (5 B) left out: more than is recorded"],
    ]);
  });
  it("keeps blank lines", () => expect(rowsOf([entry(1, "")], new Set())).toHaveLength(1));
  it("shows an exception with its traceback, or folded", () => {
    const fall = entry(1, "ValueError: no", { source: "exception", exception: told });
    expect(rowsOf([fall], new Set()).map((row) => row.kind)).toEqual(["fall", "trace", "trace", "trace"]);
    expect(rowsOf([fall], new Set([fall.id])).map((row) => row.text)).toEqual(["uncaught: ValueError: no"]);
    const elsewhere = { ...fall, exception: { ...told, thread: "loader" } };
    expect(rowsOf([elsewhere], new Set())[0]?.text).toBe("uncaught in thread loader: ValueError: no");
  });
});

describe("echoed", () => {
  const fall = entry(1e9, "ValueError: no", { id: "f", source: "exception", exception: told });
  it("is an exception that the program printed, too", () => {
    expect(echoed([fall, entry(1e9 + 5, "ValueError: no")])).toEqual(new Set(["f"]));
    expect(rowsOf([fall, entry(1e9 + 5, "ValueError: no")], new Set())).toHaveLength(2);
    expect(rowsOf([fall, entry(1e9 + 5, "ValueError: no")], new Set(["f"]))).toHaveLength(5);
  });
  it("is none that another rank printed, or that was said long after", () => {
    expect(echoed([fall, entry(2e9, "ValueError: no", { rank: 1 }), entry(9e9, "ValueError: no")]).size).toBe(0);
  });
});

describe("marked", () => {
  it("marks what is sought, in any case if it is small", () => {
    expect(marked("Loss and loss", "loss")).toEqual([
      { text: "Loss", hit: true }, { text: " and ", hit: false }, { text: "loss", hit: true },
    ]);
    expect(marked("Loss and loss", "Loss").map((part) => part.hit)).toEqual([true, false]);
    expect(marked("a.c abc", "a.c").filter((part) => part.hit)).toHaveLength(1);
    expect(marked("", "x")).toEqual([{ text: "", hit: false }]);
    expect(marked("x", "")).toEqual([{ text: "x", hit: false }]);
  });
});

describe("what is visible", () => {
  it("is a window with some rows to spare", () => {
    expect(visible(1000, 20, 4000, 400)).toEqual({ first: 180, last: 240 });
    expect(visible(10, 20, 0, 400)).toEqual({ first: 0, last: 10 });
    expect(visible(14, 20, 20_000, 400)).toEqual({ first: 0, last: 14 });
    expect(visible(0, 20, 0, 400)).toEqual({ first: 0, last: 0 });
  });
  it("finds the row of a time", () => {
    const rows = rowsOf([entry(10), entry(20), entry(30)], new Set());
    expect(rowAt(rows, 15)).toBe(1);
    expect(rowAt(rows, 99)).toBe(2);
    expect(rowAt([], 5)).toBe(0);
  });
});
