import { describe, expect, it } from "vitest";
import type { RunInfo, ShownState } from "../types";
import { counted, listed, matcher, merged, ordered, progress, remark, value, visible, type Criteria } from "./table";

function run(id: string, more: Partial<RunInfo> = {}): RunInfo {
  return {
    run: id, name: id, group: "", state: "completed", shown_state: "completed", warnings: [], reason: "", attempts: 1, ranks: 1, hosts: ["node1"], user: "", stalled: false, devices: 0, total_steps: null, goodput: null, values: {},
    workload: "", workload_uid: "", waits: "",
    started_ns: 0, ended_ns: 10, last_ns: 10, last_step: null, headline: null,
    processes: { running: 0, completed: 1, failed: 0, killed: 0, lost: 0 }, ...more,
  };
}
const ALL: Criteria = { text: "", states: [], sort: "-started", grouped: false, closed: new Set() };
const ids = (runs: RunInfo[]) => runs.map((one) => one.run).join("");

describe("filtering", () => {
  const found = run("llama-7b", { group: "Sweep", user: "Ada", hosts: ["gpu-17"], reason: "killed by SIGKILL", state: "killed", shown_state: "killed" });
  it.each([
    ["", true], ["llama", true], ["LLAMA 7b", true], ["llama sigkill", true], ["bert", false],
    ["user:ada", true], ["user:ad", false], ["group:sweep", true], ["group:swee", false], ["host:gpu-1", true], ["state:killed", true], ["state:lost", false],
  ])("%s", (text, hit) => expect(matcher(text)(found)).toBe(hit));
  it("takes only the states asked for", () => {
    const runs = (["running", "lost", "failed"] as ShownState[]).map((state) => run(state[0]!, { shown_state: state }));
    expect(listed(runs, { ...ALL, states: ["lost", "failed"] }).map((item) => item.key).sort()).toEqual(["run:f", "run:l"]);
  });
});

describe("a run that stands still", () => {
  const runs = [run("a", { state: "running", shown_state: "stalled", stalled: true, reason: "stalled: all wait for rank 3" }), run("b", { state: "running", shown_state: "running" })];
  it("is counted and filtered as stalled", () => {
    expect(counted(runs)).toEqual({ stalled: 1, running: 1 });
    expect(listed(runs, { ...ALL, states: ["stalled"] }).map((item) => item.key)).toEqual(["run:a"]);
    expect(listed(runs, { ...ALL, states: ["running"] }).map((item) => item.key)).toEqual(["run:b"]);
    expect(runs.filter(matcher("state:running"))).toHaveLength(2);
    expect(runs.filter(matcher("state:stalled"))).toHaveLength(1);
  });
  it("says why", () => expect(remark(runs[0]!)).toEqual({ text: "all wait for rank 3", warns: true }));
});

describe("a warning", () => {
  const warnings: RunInfo["warnings"] = [{ code: "loss_nonfinite", text: "loss is NaN since step 150", time_ns: 1, step: 150, weight: "warning" }];
  it("comes before the reason, and is found by the filter", () => {
    expect(remark(run("a", { warnings }))).toEqual({ text: "loss is NaN since step 150", warns: true });
    expect(remark(run("a", { warnings, reason: "exit code 1" })).text).toBe("loss is NaN since step 150; exit code 1");
    expect(remark(run("a", { reason: "exit code 1" }))).toEqual({ text: "exit code 1", warns: false });
    expect(matcher("nan")(run("a", { warnings }))).toBe(true);
    const note = [{ ...warnings[0]!, weight: "note" as const }];
    expect(remark(run("a", { warnings: note }))).toEqual({ text: "", warns: false });
  });
});

describe("order", () => {
  const runs = [
    run("a", { last_step: 5, started_ns: 1 }),
    run("b", { last_step: null, started_ns: 2 }),
    run("c", { last_step: 50, started_ns: 3, headline: { metric: "loss", time_ns: 0, step: 1, value: 0.5 } }),
  ];
  it("has what is absent at the end, either way", () => {
    expect(ids(ordered(runs, "step"))).toBe("acb");
    expect(ids(ordered(runs, "-step"))).toBe("cab");
    expect(ids(ordered(runs, "metric:loss"))).toBe("cba");
  });
  it("is by start when the column is not known, the newest first", () => {
    expect(ids(ordered(runs, "-nonsense"))).toBe("cba");
    expect(ids(ordered(runs, "name"))).toBe("abc");
  });
});

describe("groups", () => {
  const runs = [run("a", { group: "x", state: "running", shown_state: "running" }), run("b"), run("c", { group: "x" })];
  it("counts its runs and can be closed", () => {
    const open = listed(runs, { ...ALL, grouped: true });
    expect(open.map((item) => item.key)).toEqual(["group:x", "run:a", "run:c", "group:", "run:b"]);
    expect(open[0]).toMatchObject({ runs: 2, states: { running: 1, completed: 1 } });
    const closed = listed(runs, { ...ALL, grouped: true, closed: new Set(["x"]) });
    expect(closed.map((item) => item.key)).toEqual(["group:x", "group:", "run:b"]);
  });
});

describe("the screen", () => {
  it("has only rows that can be seen", () => {
    expect(visible(10_000, 40, 0, 800, 5)).toEqual([0, 25]);
    expect(visible(10_000, 40, 200_000, 800, 5)).toEqual([4995, 5025]);
    expect(visible(10_000, 40, 1e9, 800, 5)).toEqual([9994, 10_000]);
    expect(visible(0, 40, 0, 800)).toEqual([0, 0]);
  });
  it("is quick with ten thousand", () => {
    const many = Array.from({ length: 10_000 }, (_, at) => run(`run-${at}`, { started_ns: at * 7919 % 10_007, group: `g${at % 50}` }));
    const items = listed(many, { ...ALL, text: "run", grouped: true });
    expect(items.length).toBe(10_050);
  });
});

describe("one run", () => {
  it("knows how far it is only if it says where it goes", () => {
    expect(progress(run("a", { last_step: 99, total_steps: 400 }))).toBe(0.25);
    expect(progress(run("a", { last_step: 99 }))).toBeNull();
    expect(progress(run("a", { last_step: 900, total_steps: 400 }))).toBe(1);
  });
  it("keeps what a live message leaves out", () => {
    const known = run("a", { goodput: { share: 0.5, spent: {}, time_ns: 1 }, values: { lr: { time_ns: 1, step: 1, value: 2 } } });
    const news = merged(known, run("a", { state: "failed", values: { loss: { time_ns: 2, step: 2, value: "NaN" } } }));
    expect(news.state).toBe("failed");
    expect(news.goodput?.share).toBe(0.5);
    expect(value(news, "lr")).toBe(2);
    expect(value(news, "loss")).toBeNaN();
    expect(value(news, "other")).toBeNull();
    expect(merged(undefined, known)).toBe(known);
  });
  it("is not set back by an answer that was made earlier", () => {
    const live = run("a", { state: "completed", last_ns: 20, last_step: 9 });
    const late = run("a", { state: "running", last_ns: 15, last_step: 7, goodput: { share: 0.5, spent: {}, time_ns: 15 } });
    const both = merged(live, late);
    expect([both.state, both.last_ns, both.last_step]).toEqual(["completed", 20, 9]);
    expect(both.goodput?.share).toBe(0.5);
  });
});
