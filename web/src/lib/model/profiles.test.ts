import { describe, expect, test } from "vitest";
import type { Capture, CaptureProcess, ProfileInfo, SessionSummary, TraceSummary } from "../types";
import { toRequest, figures, parseRanks, progress, profileWords, splitParts, topOperations } from "./profiles";

const trace = (changed: Partial<TraceSummary> = {}): TraceSummary => ({
  kind: "kineto", file: "a", host: "n1", rank: 0, size_bytes: 1, events: 1, captured_start_ns: null, captured_end_ns: null,
  window_start_ns: null, window_end_ns: null, devices: [], memory_peaks: {}, window_ns: 2e9, steps: null, split: null, compute_on: "device",
  device_idle_percent: 40, kernels: 1, collective_ns: null, input_bound_percent: null, memory_peak_bytes: null,
  device_operations: [], host_operations: [], problems: [], ...changed,
});
const summary = (changed: Partial<SessionSummary> = {}): SessionSummary => ({
  traces: [trace()], split: null, slowest: "", slowest_mean_step_ns: null, fastest_mean_step_ns: null,
  device_idle_percent: 40, device_idle_spread: [40, 40], windows_overlap_percent: null, problems: [], ...changed,
});
const operation = (name: string, self: number) => ({ name, count: 2, total_ns: self, self_ns: self });
const process = (rank: number, state: CaptureProcess["state"]): CaptureProcess => ({
  host: "n1", rank, pid: 1, way: "sdk", state, why: "", framework: "", files: [], bytes: 0, start_ns: 0, end_ns: 0,
});
const capture = (changed: Partial<Capture> = {}): Capture => ({
  run: "r", session: "s", command: "c", state: "running", why: "", start_ns: 10e9, duration_ms: 2000, steps: null,
  hosts: [], unreachable: {}, processes: [process(0, "running"), process(1, "running")], overlap_percent: null, ...changed,
});

test("a split has shares of its whole, without what is not there", () => {
  const parts = splitParts({ compute_ns: 60, communication_ns: 0, host_ns: 30, idle_ns: 10 });
  expect(parts.map((part) => [part.name, part.share])).toEqual([["compute", 0.6], ["host", 0.3], ["idle", 0.1]]);
  expect(splitParts(null)).toEqual([]);
});

test("operations of all traces are summed, the longest first", () => {
  const traces = [trace({ device_operations: [operation("a", 1), operation("b", 4)] }), trace({ device_operations: [operation("a", 5)] })];
  expect(topOperations(traces, "device", 5)).toEqual([
    { name: "a", count: 4, selfNs: 6, share: 0.6 },
    { name: "b", count: 2, selfNs: 4, share: 0.4 },
  ]);
  expect(topOperations(traces, "host")).toEqual([]);
});

test("figures leave out what no trace tells", () => {
  expect(figures(summary())).toEqual([["window", "2 s"], ["device idle", "40.0 %"]]);
  const many = summary({ traces: [trace(), trace()], device_idle_spread: [20, 60], slowest: "n1 rank 0", slowest_mean_step_ns: 1e9 });
  expect(figures(many)).toContainEqual(["device idle", "40.0 % (20–60 %)"]);
  expect(figures(many)).toContainEqual(["slowest", "n1 rank 0, 1 s a step"]);
});

describe("a wish", () => {
  test.each([
    ["", []],
    ["0-3, 7", [0, 1, 2, 3, 7]],
    ["3,3", [3]],
    ["x", null],
    ["5-2", null],
    ["0-9999999", null],
  ])("ranks %s", (text, ranks) => expect(parseRanks(text)).toEqual(ranks));

  test("becomes a question, everyone unless said otherwise", () => {
    expect(toRequest({ hosts: [], ranks: "", by: "time", amount: 1.5 })).toEqual({ duration_ms: 1500 });
    expect(toRequest({ hosts: ["n1"], ranks: "2", by: "steps", amount: 3 })).toEqual({ hosts: ["n1"], ranks: [2], steps: 3 });
  });

  test("that cannot be says why", () => {
    expect(toRequest({ hosts: [], ranks: "all", by: "time", amount: 1 })).toContain("0-3, 7");
    expect(toRequest({ hosts: [], ranks: "", by: "time", amount: 0 })).toContain("more than zero");
  });
});

describe("progress", () => {
  test("waits, captures, writes, and is over", () => {
    expect(progress(capture(), 9e9).words).toBe("begins in 1 s");
    expect(progress(capture(), 11e9)).toEqual({ share: 0.32, words: "capturing, 1 s left" });
    expect(progress(capture({ processes: [process(0, "done"), process(1, "running")] }), 13e9).words).toBe("1 of 2 written");
    expect(progress(capture({ state: "done", processes: [process(0, "done")] }), 13e9)).toEqual({ share: 1, words: "1 process captured" });
  });
  test("says who is missing", () => {
    const partial = capture({ state: "partial", processes: [process(0, "done"), process(1, "failed")] });
    expect(progress(partial, 0).words).toBe("1 process captured, not rank 1");
    expect(progress(capture({ state: "failed", processes: [process(0, "failed")] }), 0).words).toBe("no rank was captured");
  });
});

test("a session in words", () => {
  const one = { first_step: 10, last_step: 12, start_ns: 0, end_ns: 3e9, ranks: [0, 1, 2], frameworks: ["torch"], origin: "demand" };
  expect(profileWords(one as unknown as ProfileInfo)).toBe("steps 10–12 · 3 s · ranks 0–2 · torch · on demand");
});
