// The page's names for the types of the API.  The types themselves are generated: `make types`.
// Times are nanoseconds since the epoch; as JavaScript numbers they are exact to about a quarter of a
// microsecond.

import type { components } from "./types.generated";

type Shapes = components["schemas"];

// ── values ───────────────────────────────────────────────────────────────────────────────────────

/** What a program recorded: names, with any JSON. */
export type JsonObject = EventInfo["body"];
export type Num = PointInfo["value"];
export type State = RunInfo["state"];
/** As people are told: a run that makes no progress is not called running. */
export type ShownState = RunInfo["shown_state"];
export type Severity = Incident["severity"];
export type About = MetricInfo["about"];

// ── runs ─────────────────────────────────────────────────────────────────────────────────────────

export type RunInfo = Shapes["RunInfo"];
export type RunDetail = Shapes["RunDetail"];
export type RunList = Shapes["RunList"];
export type RunWarning = Shapes["WarningInfo"];
export type RunLoad = Shapes["RunLoad"];
export type RunDeleted = Shapes["RunDeleted"];
export type Configs = Shapes["ConfigsInfo"];
export type EventInfo = Shapes["EventInfo"];
export type EventList = Shapes["EventList"];
export type LogEntry = Shapes["LogEntry"];
export type LogPage = Shapes["LogPage"];
export type ProcessInfo = Shapes["ProcessInfo"];
export type ProcessList = Shapes["ProcessList"];
export type Health = Shapes["Health"];
export type LiveHello = Shapes["LiveHello"];
export type LivePoints = Shapes["LivePoints"];

// ── series ───────────────────────────────────────────────────────────────────────────────────────

export type PointInfo = Shapes["PointInfo"];
export type SeriesInfo = Shapes["SeriesInfo"];
export type SeriesList = Shapes["SeriesList"];
export type Curve = Shapes["CurveInfo"];
export type CurveList = Shapes["CurveList"];
export type LatestInfo = Shapes["LatestInfo"];
export type LatestList = Shapes["LatestList"];
export type MetricInfo = Shapes["MetricInfo"];
export type MetricList = Shapes["MetricList"];
export type Band = Shapes["BandInfo"];
export type BandList = Shapes["BandList"];
export type SpanList = Shapes["SpanList"];

// ── goodput and the timeline ─────────────────────────────────────────────────────────────────────

export type Goodput = Shapes["GoodputInfo"];
export type Figures = Shapes["FiguresInfo"];
export type Spent = Shapes["SpentInfo"];
export type Bucket = Shapes["BucketInfo"];
export type Intervals = Shapes["IntervalsInfo"];
export type Disruption = Shapes["DisruptionInfo"];
export type RankShare = Shapes["RankInfo"];
export type RolledUp = Shapes["RolledUp"];
export type RolledPart = Shapes["RolledPart"];
export type Timeline = Shapes["TimelineInfo"];
export type TimelineGoodput = Shapes["TimelineGoodput"];
export type StepDensity = Shapes["StepColumns"];

// ── devices ──────────────────────────────────────────────────────────────────────────────────────

export type DeviceInfo = Shapes["DeviceInfo"];
export type DeviceList = Shapes["DeviceList"];
export type Heatmap = Shapes["HeatmapInfo"];
export type HeatRow = Shapes["HeatRow"];
export type HeatmapMetrics = Shapes["HeatMetrics"];

// ── stacks and incidents ─────────────────────────────────────────────────────────────────────────

export type Frame = Shapes["ReportedFrame"];
export type ProcessStacks = Shapes["ProcessStacks"];
/** The fields that a group of stacks and a group of an incident's report share. */
export type StackGroup = Pick<Shapes["ReportedGroup"], keyof Shapes["StackGroup"]>;
export type StackList = Shapes["StackList"];
export type TakeStacks = Shapes["TakeStacks"];
export type Incident = Shapes["IncidentInfo"];
export type IncidentDetail = Shapes["IncidentDetail"];
export type IncidentList = Shapes["IncidentList"];

// ── profiles and captures ────────────────────────────────────────────────────────────────────────

export type ProfileInfo = Shapes["ProfileInfo"];
export type ProfileDetail = Shapes["ProfileDetail"];
export type ProfileList = Shapes["ProfileList"];
export type ProfileDeleted = Shapes["Deleted"];
export type SessionSummary = Shapes["SessionSummary"];
export type TraceSummary = Shapes["Summary"];
export type Split = Shapes["Split"];
export type Operation = Shapes["Operation"];
export type NewCapture = Shapes["NewCapture"];
export type Capture = Shapes["CaptureInfo"];
export type CaptureProcess = Shapes["CaptureProcess"];
export type Preflight = Shapes["PreflightInfo"];

// ── access and sharing ───────────────────────────────────────────────────────────────────────────

export type Access = Shapes["AccessInfo"];
export type Share = Shapes["ShareInfo"];
export type ShareList = Shapes["ShareList"];
export type ShareMade = Shapes["ShareMade"];
export type ShareGone = Shapes["ShareGone"];
export type NewShare = Shapes["NewShare"];
export type Refusal = Shapes["ErrorAnswer"];

// ── the cluster ──────────────────────────────────────────────────────────────────────────────────

export type Session = Shapes["SessionInfo"];
export type SessionList = Shapes["SessionList"];

/** From /clients, which is outside the API and not in its document. */
export interface Client {
  client_id: string;
  hostname: string;
  gpu_count: number;
  healthy: boolean;
  /** It said that it ends; an older head does not tell. */
  ended?: boolean;
  /** RFC 3339 text, to the nanosecond. */
  last_seen: string;
}

export interface ClientList {
  total_clients: number;
  clients: Client[];
}
