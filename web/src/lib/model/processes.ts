// Processes of a run, those that ended badly first; and their events.

import type { EventInfo, LatestInfo, ProcessInfo, State } from "../types";
import { exitWords } from "./moments";
import { duration } from "./units";

const WORST_FIRST: readonly State[] = ["killed", "failed", "lost", "running", "completed"];

/** The newest attempt first, then the worst state, then by rank. */
export function inOrder(processes: readonly ProcessInfo[]): ProcessInfo[] {
  const weight = (one: ProcessInfo): number => WORST_FIRST.indexOf(one.state);
  return [...processes].sort(
    (a, b) => b.attempt - a.attempt || weight(a) - weight(b) || a.rank - b.rank || a.started_ns - b.started_ns,
  );
}

export function endWords(one: ProcessInfo): string {
  if (one.signal) return one.out_of_memory ? `${one.signal}, out of memory` : one.signal;
  if (one.exit_code !== null) return `exit code ${one.exit_code}`;
  return one.state === "running" ? "" : "–";
}

export const lasted = (one: ProcessInfo): string => duration((one.ended_ns ?? one.last_ns) - one.started_ns);

/** The pod and its node; what the host's name says already is left out. */
export function podWords(one: ProcessInfo): string {
  const pod = one.pod && one.pod !== one.host ? one.pod : "";
  const node = one.pod && one.node && one.node !== one.host ? `on ${one.node}` : "";
  return [pod, node].filter(Boolean).join(" ");
}

const key = (rank: number, attempt: number | null): string => `${rank} ${attempt ?? 0}`;

/** The last recorded step of each rank in each attempt. */
export class LastSteps {
  #steps = new Map<string, number>();

  constructor(points: readonly LatestInfo[]) {
    for (const point of points) {
      if (point.step === null) continue;
      const place = key(point.rank, point.attempt);
      this.#steps.set(place, Math.max(this.#steps.get(place) ?? -Infinity, point.step));
    }
  }

  of(one: ProcessInfo): number | null {
    return this.#steps.get(key(one.rank, one.attempt)) ?? null;
  }
}

/** An event in one line. */
export function eventWords(event: EventInfo): string {
  const { body } = event;
  if (event.kind === "process_exit") return `${exitWords(event)} (pid ${String(body["pid"] ?? "unknown")})`;
  const text = (name: string): string => (typeof body[name] === "string" ? body[name] : "");
  const message = text("message") || text("text") || text("line") || text("why") || text("exception");
  const kind = text("category") || text("level") || text("name");
  if (message) return kind ? `${kind}: ${message}` : message;
  const rest = Object.entries(body).filter(([, value]) => typeof value !== "object" && value !== "");
  return rest.map(([name, value]) => `${name} ${String(value)}`).join(", ") || event.kind;
}
