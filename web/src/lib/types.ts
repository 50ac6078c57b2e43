// The API's shapes, as `/api/v1/openapi.json` describes them.  Times are nanoseconds since the
// epoch; as JavaScript numbers they are exact to about a quarter of a microsecond.

export type Num = number | "NaN" | "Infinity" | "-Infinity";
export type State = "running" | "completed" | "failed" | "killed" | "lost";
export type Processes = Record<State, number>;

export interface Health {
  status: "ok" | "degraded";
  version?: string;
  problem?: string;
  notes?: string[];
  aside?: AsideInfo[];
}

/** A journal that is left alone since something is wrong with it. */
export interface AsideInfo {
  host: string;
  journal: string;
  why: string;
  version: string;
  since_ns: number;
}

export interface PointInfo {
  time_ns: number;
  step: number | null;
  value: Num;
}

export interface Headline extends PointInfo {
  metric: string;
}

export interface RunInfo {
  run: string;
  name: string;
  group: string;
  user?: string;
  state: State;
  reason: string;
  attempts: number;
  ranks: number;
  hosts: string[];
  started_ns: number;
  ended_ns: number | null;
  last_ns: number;
  last_step: number | null;
  processes: Processes;
  headline: Headline | null;
  devices?: number;
  total_steps?: number | null;
  goodput?: RunGoodput | null;
  values?: Record<string, PointInfo>;
}

/** As of `time_ns`; a list does not wait for it. */
export interface RunGoodput {
  share: number | null;
  spent: Record<string, number>;
  time_ns: number;
}

export interface RunList {
  runs: RunInfo[];
  total: number;
  next_offset: number | null;
}

export interface AttemptInfo {
  attempt: number;
  state: State;
  reason: string;
  ranks: number;
  hosts: string[];
  started_ns: number;
  ended_ns: number | null;
  last_ns: number;
  processes: Processes;
}

export interface RunDetail extends RunInfo {
  history: AttemptInfo[];
  /** Which limit of the head's it has reached, in words. */
  limit?: string;
}

/** What goes with a run that is deleted. */
export interface RunLoad {
  run: string;
  name: string;
  points: number;
  spans: number;
  events: number;
  profiles: number;
  bytes: number;
}

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export interface Configs {
  run: string;
  user: JsonObject;
  software: JsonObject;
  system: JsonObject;
}

export interface SeriesInfo {
  series: number;
  metric: string;
  unit: string;
  rank: number;
  host: string;
  device: string;
  attempt: number | null;
  labels: Record<string, string>;
  latest: PointInfo | null;
}

export interface SeriesList {
  run: string;
  series: SeriesInfo[];
  total: number;
  next_offset: number | null;
}

export interface Curve {
  series: number;
  label: string;
  metric: string;
  unit: string;
  rank: number;
  host: string;
  device: string;
  attempt: number | null;
  width: number;
  position: number[];
  time_ns: number[];
  first: Num[];
  last: Num[];
  minimum: (Num | null)[];
  maximum: (Num | null)[];
  mean: (Num | null)[];
  count: number[];
  nonfinite: number[];
}

export interface CurveList {
  run: string;
  axis: "time" | "step";
  curves: Curve[];
}

export interface LatestInfo extends PointInfo {
  series: number;
  metric: string;
  unit: string;
  rank: number;
  host: string;
  device: string;
  attempt: number | null;
}

export interface LatestList {
  run: string;
  points: LatestInfo[];
}

export interface EventInfo {
  time_ns: number;
  kind: string;
  step: number | null;
  rank: number;
  host: string;
  journal: string;
  body: JsonObject;
}

export interface EventList {
  run: string;
  events: EventInfo[];
}

export interface ProcessInfo {
  journal: string;
  host: string;
  pid: number;
  rank: number;
  world_size: number;
  attempt: number;
  state: State;
  reason: string;
  started_ns: number;
  ended_ns: number | null;
  last_ns: number;
  exit_code: number | null;
  signal: string | null;
  out_of_memory: boolean;
}

export interface ProcessList {
  run: string;
  processes: ProcessInfo[];
}

export interface Spent {
  name: string;
  ns: number;
  /** Of the counted time. */
  share: number;
}

export interface Bucket {
  start_ns: number;
  end_ns: number;
  goodput: number | null;
  spent_ns: Record<string, number>;
}

export interface Intervals {
  exact: boolean;
  start_ns: number[];
  end_ns: number[];
  name: string[];
}

export interface Disruption {
  attempt: number;
  time_ns: number;
  cause: string;
  hung: boolean;
  lost_steps: number;
  wasted_ns: number;
  recovery_ns: number | null;
  back_ns: number | null;
  hang_ns: number;
  warm_up_ns: number | null;
  /** Hang, lost work, recovery and warm-up together. */
  cost_ns: number;
}

export interface AttemptSteps {
  attempt: number;
  start_ns: number;
  stop_ns: number;
  steps: number;
  first_step: number | null;
  last_step: number | null;
  ideal_step_ns: number | null;
}

export interface RankShare {
  rank: number;
  steps: number;
  mean_step_ns: number | null;
  awaited_steps: number;
  awaited_ns: number;
}

/** What people expect beside goodput; null is not known. */
export interface Figures {
  ettr: number | null;
  queued_ns: number | null;
  scheduling_goodput: number | null;
  runtime_goodput: number | null;
  program_goodput: number | null;
  program_goodput_by: "" | "mfu" | "tensor_activity";
  overall_goodput: number | null;
  unknown: string[];
  devices: number;
  devices_by: "accelerators" | "ranks" | "both";
  device_hours: Record<string, number>;
  counted_device_hours: number;
  price_per_device_hour: number | null;
  cost: Record<string, number> | null;
  counted_cost: number | null;
}

/** The runs of one group, user or week. */
export interface RolledPart {
  name: string;
  runs: number;
  goodput: number | null;
  disruptions: number;
  device_hours: Record<string, number>;
  counted_device_hours: number;
  counted_cost: number | null;
  largest_loss: string;
}

/** Several runs together, as far as the page shows them. */
export interface RolledUp {
  runs: unknown[];
  total: number;
  goodput: number | null;
  device_hours: Record<string, number>;
  counted_device_hours: number;
  counted_cost: number | null;
  price_per_device_hour: number | null;
  parts: RolledPart[] | null;
}

export interface Goodput {
  run: string;
  live: boolean;
  run_start_ns: number;
  run_end_ns: number;
  start_ns: number;
  end_ns: number;
  spent: Spent[];
  total_ns: number;
  counted_ns: number;
  goodput: number | null;
  inferred_ns: number;
  steps: number;
  max_productive_step: number | null;
  ideal_step_ns: number | null;
  mean_time_between_failures_ns: number | null;
  mean_time_to_recovery_ns: number | null;
  attempts: AttemptSteps[];
  disruptions: Disruption[];
  ranks: RankShare[];
  over_time: Bucket[] | null;
  intervals: Intervals | null;
  figures: Figures | null;
}

export interface Trouble {
  hurt: string;
  words: string;
  since_ns: number | null;
}

export interface DeviceInfo {
  host: string;
  device: string;
  index: string;
  name: string;
  uuid: string;
  run: string;
  run_name: string;
  rank: number | null;
  state: "reporting" | "silent" | "ended" | "lost";
  time_ns: number | null;
  age_seconds: number | null;
  utilization_percent: number | null;
  tensor_percent: number | null;
  sm_activity_percent: number | null;
  memory_percent: number | null;
  memory_used_bytes: number | null;
  memory_total_bytes: number | null;
  dram_bytes_per_second: number | null;
  power_watts: number | null;
  power_limit_watts: number | null;
  temperature_celsius: number | null;
  memory_temperature_celsius: number | null;
  sm_clock_hz: number | null;
  memory_clock_hz: number | null;
  throttle_reasons: string[];
  ecc_corrected: number | null;
  ecc_uncorrected: number | null;
  xid: { xid: number; time_ns: number; meaning: string } | null;
  troubles: Trouble[];
}

export interface DeviceTotals {
  devices: number;
  reporting: number;
  hosts: number;
  hurting: Record<string, number>;
  utilization_percent: number | null;
  tensor_percent: number | null;
  memory_used_bytes: number | null;
  memory_total_bytes: number | null;
  power_watts: number | null;
}

export interface DeviceList {
  devices: DeviceInfo[];
  totals: DeviceTotals;
  time_ns: number;
  next_offset: number | null;
}

export interface ProfileFile {
  name: string;
  kind: string;
  bytes: number;
  modified_ns: number;
  viewer: string;
}

export interface ProfileInfo {
  run: string;
  run_name: string;
  session: string;
  state: "running" | "done" | "failed" | "partial";
  why: string;
  hosts: string[];
  ranks: number[];
  frameworks: string[];
  files: ProfileFile[];
  bytes: number;
  start_ns: number;
  end_ns: number | null;
  first_step: number | null;
  last_step: number | null;
  origin: string;
  directories: string[];
  xprof: string;
}

export interface ProfileList {
  profiles: ProfileInfo[];
}

export type About = "run" | "process" | "device" | "host";

export interface MetricInfo {
  metric: string;
  unit: string;
  about: About;
  series: number;
  latest: PointInfo | null;
}

export interface MetricList {
  run: string;
  metrics: MetricInfo[];
}

export interface Band {
  metric: string;
  unit: string;
  about: About;
  series: number;
  start_ns: number;
  width_ns: number;
  minimum: (number | null)[];
  maximum: (number | null)[];
  mean: (number | null)[];
}

export interface BandList {
  run: string;
  bands: Band[];
}

export interface HeatRow {
  host: string;
  device: string;
  index: string;
  rank: number | null;
  /** 1, or how many neighbours share the row. */
  devices: number;
  last_host: string;
  last_device: string;
}

export interface Heatmap {
  run: string;
  metric: string;
  unit: string;
  statistic: "mean" | "minimum" | "maximum";
  start_ns: number;
  width_ns: number;
  columns: number;
  devices: number;
  rows: HeatRow[];
  low: number | null;
  high: number | null;
  values: string;
}

export interface HeatmapMetrics {
  run: string;
  metrics: { metric: string; unit: string; devices: number }[];
}

export interface SpanList {
  run: string;
  complete: boolean;
  name: string[];
  rank: number[];
  step: (number | null)[];
  start_ns: number[];
  end_ns: (number | null)[];
}

export interface TimelineGoodput {
  share: number | null;
  total_ns: number;
  spent_ns: Record<string, number>;
  inferred_ns: number;
  intervals: {
    exact: boolean;
    classes: string[];
    start_ns: number[];
    end_ns: number[];
    class: number[];
    /** Unless exact: what each piece is made of, by `classes`. */
    spent_ns: number[][];
  };
}

export interface StepDensity {
  start_ns: number;
  width_ns: number;
  bucket: number[];
  count: number[];
  mean_seconds: (number | null)[];
  maximum_seconds: (number | null)[];
}

export interface TimelineProfile {
  session: string;
  state: string;
  why: string;
  origin: string;
  hosts: string[];
  ranks: number[];
  start_ns: number;
  end_ns: number | null;
  first_step: number | null;
  last_step: number | null;
}

export interface TimelineIncident {
  id: string;
  kind: string;
  state: string;
  since_ns: number;
  detected_ns: number;
  closed_ns: number | null;
  text: string;
  confidence: string;
  ranks: number[];
  severity?: "note" | "warning" | "incident";
}

export interface Timeline {
  run: string;
  name: string;
  state: State;
  live: boolean;
  time_ns: number;
  run_start_ns: number;
  run_end_ns: number;
  start_ns: number;
  end_ns: number;
  pixels: number;
  attempts: {
    attempt: number;
    state: State;
    reason: string;
    ranks: number;
    hosts: string[];
    started_ns: number;
    ended_ns: number | null;
    last_ns: number;
  }[];
  goodput: TimelineGoodput | null;
  progress?: number;
  steps: StepDensity;
  checkpoints: { start_ns: number[]; end_ns: number[]; class: string[]; left_out: number };
  disruptions: Disruption[];
  events: EventInfo[];
  left_out: Record<string, number>;
  more: boolean;
  profiles: TimelineProfile[];
  incidents: TimelineIncident[];
}

export interface LiveHello {
  version: string;
  run: string | null;
  time_ns: number;
}

export interface LivePoints {
  run: string;
  points: LatestInfo[];
}
