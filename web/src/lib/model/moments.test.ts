import { describe, expect, it } from "vitest";
import type { EventInfo, JsonObject, Severity, Timeline } from "../types";
import { clustered, inRange, moments, ranks, worst } from "./moments";

const S = 1e9;
function timeline(more: Partial<Timeline> = {}): Timeline {
  return {
    run: "r", name: "r", state: "completed", live: false, time_ns: 100 * S, run_start_ns: 0, run_end_ns: 100 * S,
    start_ns: 0, end_ns: 100 * S, pixels: 100, attempts: [], goodput: null, pending: false, progress: 1,
    steps: { start_ns: 0, width_ns: 1, bucket: [], count: [], mean_seconds: [], maximum_seconds: [] },
    checkpoints: { start_ns: [], end_ns: [], class: [], left_out: 0 },
    disruptions: [], events: [], left_out: {}, more: false, profiles: [], incidents: [], ...more,
  };
}
const event = (kind: string, at: number, rank: number, body: JsonObject = {}): EventInfo => ({
  time_ns: at * S, kind, step: null, rank, host: "vm", journal: "j", body,
});
const attempt = (number: number, at: number) => ({
  attempt: number, state: "killed" as const, reason: "", ranks: 4, hosts: ["vm"], started_ns: at * S, ended_ns: null, last_ns: 0,
  processes: { running: 0, completed: 0, failed: 0, killed: 4, lost: 0 },
});

describe("moments", () => {
  it("marks where a loss became NaN", () => {
    const body = { metric: "loss", value: "NaN", text: "loss is NaN since step 150" };
    const [mark] = moments(timeline({ events: [event("loss_nonfinite", 5, 0, body)] }));
    expect(mark).toMatchObject({ time: 5 * S, tone: "bad", title: "loss is NaN since step 150" });
  });
  it("tells a crash and a restart as a reader would", () => {
    const told = timeline({
      attempts: [attempt(1, 0), attempt(2, 20)],
      events: [
        ...[0, 1, 2, 3].map((rank) => event("run_start", 0, rank)),
        event("config", 0, 0),
        event("process_exit", 10, 1, { signal: 9, code: null }),
        ...[0, 2, 3].map((rank) => event("process_exit", 10.2, rank, { signal: 15, code: null })),
        ...[0, 1, 2, 3].map((rank) => event("run_start", 20 + rank / 10, rank)),
        event("run_end", 90, 0, { status: "completed" }),
      ],
      disruptions: [{ attempt: 1, time_ns: 10 * S, cause: "rank 1 killed by SIGKILL on vm", hung: false, lost_steps: 32, wasted_ns: 3e8, recovery_ns: 9 * S, back_ns: 9.5 * S, hang_ns: 0, warm_up_ns: null, cost_ns: 9.8 * S }],
    });
    expect(moments(told).map((one) => one.title)).toEqual([
      "attempt 1 started: 4 ranks",
      "rank 1 killed by SIGKILL",
      "attempt 1 stopped: rank 1 killed by SIGKILL on vm",
      "ranks 0, 2, 3 killed by SIGTERM",
      "attempt 2 started: 4 ranks",
      "rank 0 finished",
    ]);
    expect(moments(told)[2]?.detail).toBe("32 steps lost (300 ms of work), back after 9.5 s, cost 9.8 s");
  });
  it("tells of pods in a cluster's words, and once of what happened to several", () => {
    const pod = (name: string, at: number, what: string, more: JsonObject = {}) => event("pod", at, -1, { pod: name, what, container: "", restarts: 0, ...more });
    const told = timeline({
      events: [
        pod("a-0", 1, "created"),
        pod("a-0", 2, "unschedulable", { reason: "Unschedulable", message: "0/4 nodes are available" }),
        pod("a-0", 9, "started", { container: "train" }),
        ...["a-0", "a-1", "a-2"].map((name) => pod(name, 30, "evicted", { message: "low on memory. " })),
        pod("a-0", 31, "oom_killed", { container: "train", exit_code: 137 }),
        pod("a-0", 32, "ended", { reason: "Failed" }),
        pod("a-1", 33, "ended", { reason: "Succeeded" }),
      ],
    });
    expect(moments(told).map((one) => [one.title, one.detail, one.tone])).toEqual([
      ["pod a-0 made", "", "plain"],
      ["pod a-0 waiting for a node", "0/4 nodes are available", "warn"],
      ["pod a-0 started container train", "", "plain"],
      ["3 pods evicted", "low on memory.", "bad"],
      ["pod a-0 out of memory in container train", "", "bad"],
      ["pod a-0 failed", "", "bad"],
      ["pod a-1 completed", "", "good"],
    ]);
    expect(moments(told).every((one) => !one.ranks.length && !one.hosts.length)).toBe(true);
  });
  it("says of which fault a process died, though writing its stacks ended it otherwise", () => {
    const told = timeline({ events: [event("process_exit", 1, 0, { signal: 11, code: null, fault: "SIGILL" })] });
    expect(moments(told).map((one) => one.title)).toEqual(["rank 0 killed by SIGILL"]);
  });
  it("shows a note calmly, a warning louder", () => {
    const one = { id: "i", kind: "hang", state: "open", since_ns: S, detected_ns: S, closed_ns: null, text: "it compiles", confidence: "", ranks: [0] } as const;
    const tone = (severity: Severity) => moments(timeline({ incidents: [{ ...one, ranks: [0], severity }] }))[0]?.tone;
    expect([tone("note"), tone("warning"), tone("incident")]).toEqual(["plain", "warn", "bad"]);
  });
  it("knows exits, devices, incidents, profiles and what it does not know", () => {
    const told = timeline({
      events: [
        event("process_exit", 1, 0, { code: 3, signal: null }),
        event("gpu_xid", 2, 0, { xid: 79, device: "gpu3", meaning: "fell off the bus" }),
        event("strange_thing", 3, 5, { size: 3, deep: { x: 1 } }),
        event("log", 4, 0, { name: "note", value: { a: 1 } }),
      ],
      incidents: [{ id: "i", kind: "hang", state: "open", since_ns: 5 * S, detected_ns: 6 * S, closed_ns: null, text: "rank 2 is stuck", confidence: "high", ranks: [2], severity: "incident" }],
      profiles: [{ session: "s1", state: "done", why: "", origin: "program", hosts: [], ranks: [0], start_ns: 7 * S, end_ns: 8 * S, first_step: 10, last_step: 12 }],
      checkpoints: { start_ns: [9 * S], end_ns: [9.5 * S], class: ["checkpoint_save"], left_out: 0 },
    });
    const found = moments(told);
    expect(found.map((one) => one.title)).toEqual([
      "rank 0 exited with code 3", "XID 79 on gpu3", "rank 5 strange thing", "rank 0 note", "rank 2 is stuck", "profile s1", "saved checkpoint",
    ]);
    expect(found[1]?.detail).toBe("fell off the bus");
    expect(found[2]?.detail).toBe("size 3");
    expect(found[4]?.end).toBe(100 * S);
    expect(found[5]?.detail).toBe("done, steps 10–12");
  });
  it("does not join what lies apart", () => {
    const told = timeline({ events: [event("process_exit", 1, 0, { signal: 9 }), event("process_exit", 30, 1, { signal: 9 })] });
    expect(moments(told)).toHaveLength(2);
  });
  it("is inside a range also by its end", () => {
    const told = timeline({ profiles: [{ session: "s", state: "done", why: "", origin: "", hosts: [], ranks: [], start_ns: 1 * S, end_ns: 9 * S, first_step: null, last_step: null }] });
    expect(inRange(moments(told), { start: 5 * S, end: 6 * S })).toHaveLength(1);
    expect(inRange(moments(told), { start: 10 * S, end: 11 * S })).toHaveLength(0);
  });
});

describe("ranks", () => {
  it.each([
    [[3], "rank 3"],
    [[0, 1], "ranks 0, 1"],
    [[0, 2, 3], "ranks 0, 2, 3"],
    [Array.from({ length: 512 }, (_, at) => at), "ranks 0–511"],
    [[0, 2, 4, 6, 8], "5 ranks"],
  ])("%j", (list, words) => expect(ranks(list)).toBe(words));
});

describe("marks", () => {
  it("joins those that would overlap and shows the worst", () => {
    const told = timeline({ events: [event("log", 1, 0, { name: "x" }), event("process_exit", 1.1, 0, { signal: 9 }), event("log", 50, 0, { name: "y" })] });
    const found = clustered(moments(told), (time) => time / S, 5);
    expect(found.map((one) => one.moments.length)).toEqual([2, 1]);
    expect(worst(found[0]!.moments).tone).toBe("bad");
  });
});
