import { describe, expect, test } from "vitest";
import type { EventInfo, JsonObject, LatestInfo, ProcessInfo } from "../types";
import { LastSteps, endWords, eventWords, inOrder, lasted, podWords } from "./processes";

const process = (changed: Partial<ProcessInfo> = {}): ProcessInfo => ({
  journal: "j", host: "a", pid: 1, rank: 0, world_size: 2, attempt: 1, state: "running", reason: "",
  started_ns: 0, ended_ns: null, last_ns: 5e9, exit_code: null, signal: null, out_of_memory: false, role: "process",
  pod: "", pod_namespace: "", pod_uid: "", node: "", workload: "", workload_uid: "", ...changed,
});
const point = (rank: number, attempt: number, step: number | null): LatestInfo => ({
  series: 1, metric: "loss", unit: "", rank, host: "a", device: "", attempt, time_ns: 1, step, value: 1,
});
const event = (body: JsonObject): EventInfo => ({ time_ns: 1, kind: "warning", step: null, rank: 0, host: "a", journal: "j", body });

test("the newest attempt comes first, in it the worst, then by rank", () => {
  const order = inOrder([
    process({ rank: 1 }), process({ rank: 0 }), process({ rank: 5, state: "killed" }), process({ rank: 2, attempt: 2 }),
  ]);
  expect(order.map((one) => [one.attempt, one.rank])).toEqual([[2, 2], [1, 5], [1, 0], [1, 1]]);
});

describe("an end in words", () => {
  test.each([
    [{ signal: "SIGKILL", out_of_memory: true, state: "killed" as const }, "SIGKILL, out of memory"],
    [{ exit_code: 0, state: "completed" as const }, "exit code 0"],
    [{ state: "lost" as const }, "–"],
    [{}, ""],
  ])("%o", (changed, words) => expect(endWords(process(changed))).toBe(words));
});

test("a process that lives has lasted until it was last heard of", () => expect(lasted(process())).toBe("5 s"));

describe("where a pod runs, in words", () => {
  test.each([
    [{}, ""],
    [{ pod: "llama-0", node: "gpu-17" }, "llama-0 on gpu-17"],
    [{ host: "llama-0", pod: "llama-0", node: "gpu-17" }, "on gpu-17"],
    [{ host: "gpu-17", pod: "llama-0", node: "gpu-17" }, "llama-0"],
    [{ node: "gpu-17" }, ""],
  ])("%o", (changed, words) => expect(podWords(process(changed))).toBe(words));
});

test("the last step is the highest of any metric, per rank and attempt", () => {
  const steps = new LastSteps([point(0, 1, 7), point(0, 1, 9), point(0, 1, null), point(1, 2, 3)]);
  expect(steps.of(process())).toBe(9);
  expect(steps.of(process({ rank: 1 }))).toBe(null);
});

test("an event is told by its message, else by its fields", () => {
  expect(eventWords(event({ category: "UserWarning", message: "hot" }))).toBe("UserWarning: hot");
  expect(eventWords(event({ count: 3, deep: { a: 1 } }))).toBe("count 3");
  expect(eventWords(event({}))).toBe("warning");
  const exit = (body: JsonObject): EventInfo => ({ ...event(body), kind: "process_exit" });
  expect(eventWords(exit({ pid: 7, signal: 9, oom: true }))).toBe("killed by SIGKILL, out of memory (pid 7)");
  expect(eventWords(exit({ pid: 7, signal: null, code: 1 }))).toBe("exited with code 1 (pid 7)");
});
