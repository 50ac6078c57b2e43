// Shapes of the API that only the tabs of a run and the cluster page draw.

import type { ProfileInfo } from "./types";

export interface Access {
  level: "full" | "read";
  role?: "ingest" | "view" | "operate" | "admin" | null;
  run: string | null;
  /** The groups whose runs may be seen; empty: all. */
  projects?: string[];
  /** Came by a shared link. */
  link?: boolean;
  login: boolean;
}

/** A link for looking only. */
export interface Share {
  id: string;
  run: string | null;
  run_name: string;
  note: string;
  created_ns: number;
  expires_ns: number;
  used_ns: number | null;
}
export interface ShareMade extends Share {
  token: string;
  path: string;
  link: string;
}
export interface ShareList {
  shares: Share[];
}

// ── stacks ───────────────────────────────────────────────────────────────────────────────────────

export interface Frame {
  function: string;
  file: string;
  line: number;
  native?: boolean;
}

/** A task of an event loop. */
export interface Task {
  name: string;
  awaits: string[];
  is_root: boolean;
  frames: Frame[];
}

export interface Thread {
  name: string;
  native_id: number;
  is_main: boolean;
  holds_gil: boolean;
  idle: boolean;
  frames: Frame[];
  tasks?: Task[];
}

export interface ProcessStacks {
  rank: number;
  host: string;
  pid: number;
  child_of: number;
  time_ns: number;
  how: string;
  state: string;
  fault: string;
  problems: string[];
  incident: string;
  round: number;
  command: string;
  threads: Thread[];
}

export interface StackGroup {
  ranks: number[];
  text: string;
  state: string;
  thread: string;
  frames: Frame[];
  problems: string[];
}

export interface StackList {
  run: string;
  time_ns: number | null;
  command: string;
  text: string;
  confidence: string;
  ranks: number[];
  unreachable: Record<string, string>;
  waiting_for: string[];
  groups: StackGroup[];
  processes: ProcessStacks[];
}

export type Severity = "note" | "warning" | "incident";

export interface Incident {
  id: string;
  run: string;
  kind: "hang" | "crash";
  state: "open" | "closed";
  since_ns: number;
  detected_ns: number;
  named_ns: number;
  closed_ns: number | null;
  why: string;
  text: string;
  confidence: string;
  ranks: number[];
  rounds: number;
  /** Heads of before there were severities tell none, and of alarms only. */
  severity?: Severity;
}

export interface IncidentList {
  run: string;
  incidents: Incident[];
}

export interface Report {
  groups?: StackGroup[];
  evidence?: string[];
  look_at?: string[];
  unreachable?: Record<string, string>;
  silent_hosts?: string[];
}

export interface IncidentDetail extends Incident {
  report: Report;
  stacks: ProcessStacks[];
}

// ── profiles ─────────────────────────────────────────────────────────────────────────────────────

export interface Split {
  compute_ns: number;
  communication_ns: number;
  host_ns: number;
  idle_ns: number;
}

export interface Operation {
  name: string;
  count: number;
  total_ns: number;
  self_ns: number;
}

export interface TraceSummary {
  kind: string;
  file: string;
  host: string;
  rank: number | null;
  window_ns: number;
  steps: { count: number; first: number; last: number; mean_ns: number; p50_ns: number; max_ns: number } | null;
  split: Split | null;
  compute_on: string;
  device_idle_percent: number | null;
  kernels: number | null;
  collective_ns: number | null;
  input_bound_percent: number | null;
  memory_peak_bytes: number | null;
  device_operations: Operation[];
  host_operations: Operation[];
  problems: string[];
}

export interface SessionSummary {
  traces: TraceSummary[];
  split: Split | null;
  slowest: string;
  slowest_mean_step_ns: number | null;
  fastest_mean_step_ns: number | null;
  device_idle_percent: number | null;
  device_idle_spread: [number, number] | null;
  windows_overlap_percent: number | null;
  problems: string[];
}

export interface ProfileDetail extends ProfileInfo {
  parts: { host: string; rank: number; framework: string; state: string; why: string; bytes: number }[];
  summary_state: "none" | "waiting" | "done" | "failed";
  summary_why: string;
  summary: SessionSummary | null;
}

export interface NewCapture {
  hosts?: string[];
  ranks?: number[];
  duration_ms?: number;
  steps?: number;
  session?: string;
}

export interface CaptureProcess {
  host: string;
  rank: number;
  pid: number;
  way: string;
  state: "asked" | "running" | "done" | "failed" | "partial";
  why: string;
  framework: string;
  files: string[];
  bytes: number;
  start_ns: number;
  end_ns: number;
}

export interface Capture {
  run: string;
  session: string;
  command: string;
  state: "asked" | "running" | "done" | "failed" | "partial";
  why: string;
  start_ns: number;
  duration_ms: number | null;
  steps: number | null;
  hosts: string[];
  unreachable: Record<string, string>;
  processes: CaptureProcess[];
  overlap_percent: number | null;
}

export interface Preflight {
  processes: { host: string; rank: number; pid: number; way: string; why: string; frameworks: string[]; ready_ms: number }[];
  hosts: Record<string, string>;
  lead_seconds: number;
}

// ── the cluster ──────────────────────────────────────────────────────────────────────────────────

export interface Session {
  id: string;
  name: string;
  active: boolean;
  started_ns: number;
  ended_ns: number | null;
  period_ns: number;
  frames: number;
}

export interface SessionList {
  sessions: Session[];
}

export interface Client {
  client_id: string;
  hostname: string;
  gpu_count: number;
  healthy: boolean;
  /** As text, to the nanosecond. */
  last_seen: string;
}

export interface ClientList {
  total_clients: number;
  clients: Client[];
}
