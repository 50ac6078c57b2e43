// The events of a timeline in words.

import type { EventInfo, JsonObject, RunDetail, Timeline } from "../types";
import { meaning } from "./intervals";
import { localTimes } from "./ticks";
import { duration, plain, several } from "./units";
import type { Range } from "./zoom";

export type Tone = "good" | "bad" | "warn" | "plain";
export type Sort = "start" | "end" | "exit" | "stop" | "incident" | "device" | "warning" | "log" | "checkpoint" | "profile" | "other";

export interface Moment {
  /** Unique, also in an address. */
  key: string;
  time: number;
  /** Null if it has no duration. */
  end: number | null;
  sort: Sort;
  tone: Tone;
  title: string;
  detail: string;
  ranks: number[];
  hosts: string[];
  /** Whom a cluster tells of. */
  pods: string[];
}

const SIGNALS: Record<number, string> = {
  1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL",
  10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM",
};
const TOGETHER_NS = 3e9;

type Words = [sort: Sort, tone: Tone, title: string, detail?: string];

const text = (value: unknown): string =>
  value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);

const WORDS: Record<string, (body: JsonObject, event: EventInfo) => Words | null> = {
  run_start: () => ["start", "plain", "started"],
  run_end: (body) =>
    body.status === "completed"
      ? ["end", "good", "finished"]
      : ["end", "bad", body.exception ? `ended by ${text(body.exception)}` : `ended: ${text(body.status) || "failed"}`, text(body.reason)],
  process_exit: (body) => {
    if (text(body.fault)) return ["exit", "bad", `killed by ${text(body.fault)}`];
    if (typeof body.signal === "number" && body.signal) {
      const name = SIGNALS[body.signal] ?? `signal ${body.signal}`;
      return ["exit", "bad", `killed by ${name}`, body.oom ? "out of memory" : ""];
    }
    if (body.code === 0) return ["exit", "plain", "exited with code 0"];
    if (typeof body.code === "number") return ["exit", "bad", `exited with code ${body.code}`];
    return ["exit", "warn", "ended, unknown how"];
  },
  gpu_xid: (body) => ["device", "bad", `XID ${text(body.xid)} on ${text(body.device) || "a GPU"}`, text(body.meaning)],
  device_lost: (body) => ["device", "bad", `${text(body.device) || "a device"} was lost`, text(body.why)],
  device_added: (body) => ["device", "good", `${text(body.device) || "a device"} was added`],
  device_unreadable: (body) => ["device", "warn", `${text(body.device) || "a device"} cannot be read`, text(body.why)],
  collector_stuck: (body) => ["device", "warn", `${text(body.collector) || "a collector"} is stuck`],
  // The main thread's is the run's end, which says it.
  exception: (body) =>
    body.thread === "MainThread"
      ? null
      : ["warning", "bad", `thread ${text(body.thread)} ended by ${[text(body.type), text(body.message)].filter(Boolean).join(": ")}`],
  warning: (body) => ["warning", "warn", text(body.what) || "warning", Number(body.count) > 1 ? `${text(body.count)} times` : ""],
  log: (body) => ["log", "plain", text(body.message ?? body.text ?? body.name) || "log", text(body.value)],
  journal_loss: (body) => ["warning", "warn", "records were lost", several(Number(body.dropped_records ?? 0), "record")],
  clock_jump: (body) => ["warning", "warn", "the clock jumped", text(body.seconds)],
  loss_nonfinite: (body) => ["warning", "bad", localTimes(text(body.text)) || `${text(body.metric)} is ${text(body.value)}`],
  limit_reached: (body) => ["warning", "warn", `the head refuses more ${text(body.what) || "records"}`, text(body.why)],
  queue_unknown: (body) => ["warning", "warn", `${text(body.by) || "the scheduler"} does not say how long the job waited`, text(body.why)],
  pod: (body) => ofPod(text(body.what), body),
  // Shown elsewhere, or not of interest here.
  config: () => null, console: () => null, elapsed: () => null, goodput_entry: () => null, profile: () => null,
  incident: () => null, stacks: () => null, device_owner: () => null, fork: () => null, agent_start: () => null, agent_end: () => null,
  command_result: () => null,
};

/** By SIGKILL and SIGTERM: a sidecar ends so when the program beside it has ended. */
const TOLD_TO_GO = [137, 143];

/** What follows the name of a pod, or the number of several to which the same happened. */
function ofPod(what: string, body: JsonObject): Words {
  const why = (text(body.message) || text(body.reason)).trim();
  const container = `container ${text(body.container)}`;
  const code = typeof body.exit_code === "number" ? `with exit code ${body.exit_code}` : "";
  switch (what) {
    case "created": return ["other", "plain", "made"];
    case "scheduled": return ["other", "plain", "scheduled", body.node ? `on ${text(body.node)}` : ""];
    case "unschedulable": return ["warning", "warn", "waiting for a node", why];
    case "pulling": return ["other", "plain", "pulling an image"];
    case "pull_failed": return ["warning", "warn", "without an image", why];
    case "started": return ["other", "plain", `started ${container}`, Number(body.restarts) ? `again (${text(body.restarts)})` : ""];
    case "container_ended": return ["exit", body.exit_code === 0 ? "plain" : TOLD_TO_GO.includes(Number(body.exit_code)) ? "warn" : "bad", `ended ${container}`, body.exit_code === 0 ? "" : code];
    case "oom_killed": return ["exit", "bad", `out of memory in ${container}`];
    case "evicted": case "preempted": return ["exit", "bad", what, why];
    case "deleted": return ["exit", "warn", "deleted"];
    case "ended": {
      const well = ["Succeeded", "Completed"].includes(text(body.reason));
      return ["end", well ? "good" : "bad", well ? "completed" : "failed", well || why === "Failed" ? "" : why];
    }
    case "node_not_ready": return ["device", "bad", "on a node that is not heard of", why];
    case "node_ready": return ["device", "good", "on a node that is heard of again"];
    default: return ["other", "plain", what.replaceAll("_", " ") || "changed", why];
  }
}

/** How a process ended, from its `process_exit`. */
export function exitWords(event: EventInfo): string {
  const words = WORDS["process_exit"]?.(event.body, event);
  return words ? [words[2], words[3]].filter(Boolean).join(", ") : "";
}

export function moments(timeline: Timeline): Moment[] {
  const all = [
    ...together(timeline.events.flatMap(ofEvent)).map((one) => named(one, timeline)),
    ...timeline.disruptions.map((one): Moment => ({
      ...blank(`disruption:${one.attempt}`, one.time_ns),
      sort: "stop",
      tone: "bad",
      title: `attempt ${one.attempt} stopped: ${localTimes(one.cause)}`,
      detail: [
        one.lost_steps ? `${several(one.lost_steps, "step")} lost (${duration(one.wasted_ns)} of work)` : "",
        one.back_ns === null ? "" : `back after ${duration(one.back_ns)}`,
        `cost ${duration(one.cost_ns)}`,
      ].filter(Boolean).join(", "),
    })),
    ...timeline.checkpoints.start_ns.map((start, at): Moment => {
      const end = timeline.checkpoints.end_ns[at] ?? start;
      const title = meaning(timeline.checkpoints.class[at] ?? "checkpoint_save").title.replace(/s$/, "").replace("saving", "saved").replace("restoring", "restored");
      return { ...blank(`checkpoint:${start}`, start), end, sort: "checkpoint", tone: "plain", title, detail: `took ${duration(end - start)}` };
    }),
    ...timeline.incidents.map((one): Moment => ({
      ...blank(`incident:${one.id}`, one.since_ns),
      end: one.closed_ns ?? timeline.time_ns,
      sort: "incident",
      tone: one.severity === "note" ? "plain" : one.state === "open" && one.severity !== "warning" ? "bad" : "warn",
      title: localTimes(one.text) || one.kind,
      detail: one.closed_ns === null ? "still open" : `over after ${duration(one.closed_ns - one.since_ns)}`,
      ranks: one.ranks,
    })),
    ...timeline.profiles.map((one): Moment => ({
      ...blank(`profile:${one.session}`, one.start_ns),
      end: one.end_ns ?? timeline.time_ns,
      sort: "profile",
      tone: one.state === "failed" ? "bad" : "plain",
      title: `profile ${one.session}`,
      detail: one.why || [one.state, one.first_step === null ? "" : `steps ${one.first_step}–${one.last_step ?? "…"}`].filter(Boolean).join(", "),
      ranks: one.ranks,
      hosts: one.hosts,
    })),
  ];
  return all.sort((a, b) => a.time - b.time);
}

const blank = (key: string, time: number): Moment => ({
  key, time, end: null, sort: "other", tone: "plain", title: "", detail: "", ranks: [], hosts: [], pods: [],
});

function ofEvent(event: EventInfo): Moment[] {
  const toWords = WORDS[event.kind];
  const words = toWords ? toWords(event.body, event) : (["other", "plain", event.kind.replaceAll("_", " "), brief(event.body)] as Words);
  if (!words) return [];
  const [sort, tone, title, detail = ""] = words;
  // An agent's event is about its host, not about a rank; a loss names its ranks itself.
  const isOfPod = event.kind === "pod"; // an operator tells it, of no rank and from anywhere
  const ranks = sort === "device" || isOfPod || event.kind === "loss_nonfinite" ? [] : [event.rank];
  const pods = isOfPod ? [text(event.body.pod)] : [];
  const hosts = event.host && !isOfPod ? [event.host] : [];
  return [{ ...blank(`${event.kind}:${event.time_ns}`, event.time_ns), sort, tone, title, detail, ranks, hosts, pods }];
}

const brief = (body: JsonObject): string =>
  Object.entries(body).filter(([, value]) => value !== null && typeof value !== "object").slice(0, 4).map(([key, value]) => `${key} ${typeof value === "number" ? plain(value) : text(value)}`).join(", ");

/** Joins equal events of several ranks within a few seconds. */
function together(all: Moment[]): Moment[] {
  const open = new Map<string, Moment>();
  const joined: Moment[] = [];
  for (const one of all.sort((a, b) => a.time - b.time)) {
    const alike = `${one.sort} ${one.pods.length ? "pod" : ""} ${one.title} ${one.detail}`;
    const first = open.get(alike);
    if (first && one.time - first.time <= TOGETHER_NS) {
      first.ranks = [...new Set([...first.ranks, ...one.ranks])].sort((a, b) => a - b);
      first.hosts = [...new Set([...first.hosts, ...one.hosts])];
      first.pods = [...new Set([...first.pods, ...one.pods])];
      continue;
    }
    open.set(alike, one);
    joined.push(one);
  }
  return joined;
}

function named(one: Moment, timeline: Timeline): Moment {
  if (one.pods.length) return { ...one, title: `${one.pods.length > 1 ? several(one.pods.length, "pod") : `pod ${one.pods[0]}`} ${one.title}` };
  if (one.sort === "start") {
    const attempt = [...timeline.attempts].reverse().find((known) => known.started_ns <= one.time + TOGETHER_NS);
    const which = attempt && timeline.attempts.length > 1 ? `attempt ${attempt.attempt} started` : "started";
    return { ...one, title: one.ranks.length > 1 ? `${which}: ${several(one.ranks.length, "rank")}` : which, ranks: one.ranks.length > 1 ? [] : one.ranks };
  }
  return one.ranks.length ? { ...one, title: `${ranks(one.ranks)} ${one.title}` } : one;
}

/** `rank 3`, `ranks 0, 2, 3`, `ranks 0–511`, `200 ranks`. */
export function ranks(of: readonly number[]): string {
  if (of.length === 1) return `rank ${of[0]}`;
  const runs: [number, number][] = [];
  for (const rank of of) {
    const last = runs[runs.length - 1];
    if (last && rank === last[1] + 1) last[1] = rank;
    else runs.push([rank, rank]);
  }
  if (runs.length > 4) return several(of.length, "rank");
  return `ranks ${runs.map(([a, b]) => (a === b ? `${a}` : b === a + 1 ? `${a}, ${b}` : `${a}–${b}`)).join(", ")}`;
}

export function inRange(all: readonly Moment[], range: Range): Moment[] {
  return all.filter((one) => one.time < range.end && (one.end ?? one.time) >= range.start);
}

export interface Cluster {
  x: number;
  moments: Moment[];
}

/** Joins marks that would overlap; `worst` decides how the mark looks. */
export function clustered(all: readonly Moment[], toX: (time: number) => number, apart: number): Cluster[] {
  const clusters: Cluster[] = [];
  for (const one of all) {
    const x = toX(one.time);
    const last = clusters[clusters.length - 1];
    if (last && x - last.x < apart) last.moments.push(one);
    else clusters.push({ x, moments: [one] });
  }
  return clusters;
}

const WEIGHT: Record<Tone, number> = { bad: 30, warn: 20, good: 10, plain: 0 };
const SORT_WEIGHT: Partial<Record<Sort, number>> = { stop: 5, incident: 4, device: 3, exit: 2, start: 1 };
const weight = (one: Moment): number => WEIGHT[one.tone] + (SORT_WEIGHT[one.sort] ?? 0);
export const worst = (all: readonly Moment[]): Moment => all.reduce((a, b) => (weight(b) > weight(a) ? b : a));

/** An empty timeline that only knows when the run was. */
export function nothingYet(run: RunDetail): Timeline {
  const end = run.ended_ns ?? run.last_ns;
  return {
    run: run.run, name: run.name, state: run.state, live: run.state === "running", time_ns: end,
    run_start_ns: run.started_ns, run_end_ns: end, start_ns: run.started_ns, end_ns: end, pixels: 0,
    attempts: run.history, goodput: null, pending: false, progress: 1,
    steps: { start_ns: 0, width_ns: 1, bucket: [], count: [], mean_seconds: [], maximum_seconds: [] },
    checkpoints: { start_ns: [], end_ns: [], class: [], left_out: 0 },
    disruptions: [], events: [], left_out: {}, more: false, profiles: [], incidents: [],
  };
}
