// What the page asks the head, and the only file that calls fetch.  An endpoint that several places ask for has a
// function here; one place alone may use `ask`.

import { unitOf } from "./model/units";
import type {
  Access,
  BandList,
  Capture,
  ClientList,
  Configs,
  CurveList,
  DeviceList,
  EventList,
  Goodput,
  Health,
  Heatmap,
  HeatmapMetrics,
  IncidentDetail,
  IncidentList,
  LatestList,
  LogPage,
  MetricList,
  NewCapture,
  NewShare,
  Preflight,
  ProcessList,
  ProfileDeleted,
  ProfileDetail,
  ProfileList,
  Refusal,
  RolledUp,
  RunDeleted,
  RunDetail,
  RunList,
  RunLoad,
  SeriesList,
  Session,
  SessionList,
  ShareGone,
  ShareList,
  ShareMade,
  SpanList,
  StackList,
  TakeStacks,
  Timeline,
} from "./types";

type Value = string | number | boolean;
export type Query = Record<string, Value | readonly Value[] | null | undefined>;

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    /** Ids of runs that the request may mean. */
    readonly choices: readonly string[] = [],
  ) {
    super(message);
  }
}

/** Called when the head asks for a token that we do not have. */
let onLocked: () => void = () => {};
export function whenLocked(tell: () => void): void {
  onLocked = tell;
}

export function address(path: string, query: Query = {}): string {
  const url = new URL(path, document.baseURI.replace(/[?#].*$/s, ""));
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) url.searchParams.append(name, written(one));
  }
  return url.href;
}

function written(value: Value): string {
  // Nanoseconds exceed what Number holds exactly, but it still prints them without an exponent.
  return typeof value === "number" && !Number.isInteger(value) ? String(Math.round(value)) : String(value);
}

/** A path below api/v1.  `T` is the shape of its answer: `components["schemas"][…]` of types.generated.ts. */
export async function ask<T>(path: string, query: Query = {}, signal?: AbortSignal, init: RequestInit = {}): Promise<T> {
  let reply: Response;
  try {
    reply = await fetch(address(`api/v1/${path}`, query), { ...init, ...(signal ? { signal } : {}) });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "away", "The head does not answer.");
  }
  if (reply.ok) return (await reply.json()) as T;
  throw await refusal(reply);
}

async function refusal(reply: Response): Promise<ApiError> {
  if (reply.status === 401) onLocked();
  try {
    const { error } = (await reply.json()) as Refusal;
    return new ApiError(reply.status, error.code, error.message, error.choices);
  } catch {
    return new ApiError(reply.status, "unreadable", `The head answered ${reply.status} ${reply.statusText}.`);
  }
}

const of = (run: string): string => `runs/${encodeURIComponent(run)}`;

export const health = (signal?: AbortSignal) => ask<Health>("health", {}, signal);
export const runs = (query: Query = {}, signal?: AbortSignal) => ask<RunList>("runs", query, signal);
export const run = (id: string, signal?: AbortSignal) => ask<RunDetail>(of(id), {}, signal);
export const configs = (id: string, signal?: AbortSignal) => ask<Configs>(`${of(id)}/configs`, {}, signal);
export const series = (id: string, query: Query = {}, signal?: AbortSignal) =>
  ask<SeriesList>(`${of(id)}/series`, query, signal);
export const curves = (id: string, query: Query, signal?: AbortSignal) =>
  ask<CurveList>(`${of(id)}/curves`, query, signal);
export const latest = (id: string, query: Query = {}, signal?: AbortSignal) =>
  ask<LatestList>(`${of(id)}/latest`, query, signal);
export const events = (id: string, query: Query = {}, signal?: AbortSignal) =>
  ask<EventList>(`${of(id)}/events`, query, signal);
export const logs = (id: string, query: Query = {}, signal?: AbortSignal) =>
  ask<LogPage>(`${of(id)}/logs`, query, signal);
export const processes = (id: string, signal?: AbortSignal) =>
  ask<ProcessList>(`${of(id)}/processes`, {}, signal);
/** Goodput of several runs together. */
export const rolledUp = (query: Query, signal?: AbortSignal) => ask<RolledUp>("goodput", query, signal);
export const goodput = (id: string, query: Query = {}, signal?: AbortSignal) =>
  ask<Goodput>(`${of(id)}/goodput`, query, signal);
export const profiles = (id: string, signal?: AbortSignal) => ask<ProfileList>(`${of(id)}/profiles`, {}, signal);
export const devices = (query: Query = {}, signal?: AbortSignal) => ask<DeviceList>("devices", query, signal);

/** Replaces units as people write them by one symbol each. */
function symbolic<T extends { metric: string; unit: string }>(item: T): T {
  return { ...item, unit: unitOf(item.metric, item.unit) };
}
export const metrics = async (id: string, signal?: AbortSignal): Promise<MetricList> => {
  const answer = await ask<MetricList>(`${of(id)}/metrics`, {}, signal);
  return { ...answer, metrics: answer.metrics.map(symbolic) };
};
export const bands = async (id: string, query: Query, signal?: AbortSignal): Promise<BandList> => {
  const answer = await ask<BandList>(`${of(id)}/bands`, query, signal);
  return { ...answer, bands: answer.bands.map(symbolic) };
};
export const timeline = (id: string, query: Query, signal?: AbortSignal) =>
  ask<Timeline>(`${of(id)}/timeline`, query, signal);
export const heatmap = async (id: string, query: Query, signal?: AbortSignal): Promise<Heatmap> =>
  symbolic(await ask<Heatmap>(`${of(id)}/heatmap`, query, signal));
export const heatmapMetrics = async (id: string, signal?: AbortSignal): Promise<HeatmapMetrics> => {
  const answer = await ask<HeatmapMetrics>(`${of(id)}/heatmap/metrics`, {}, signal);
  return { ...answer, metrics: answer.metrics.map(symbolic) };
};
export const spans = (id: string, query: Query, signal?: AbortSignal) =>
  ask<SpanList>(`${of(id)}/spans`, query, signal);

/** Address of the live stream, for `live.svelte.ts`.  Values are off: charts fetch what they show. */
export const liveAddress = (run?: string): string => address("api/v1/live", run ? { run, values: "off" } : {});
export const exportAddress = (id: string, format: string): string => address(`api/v1/${of(id)}/export`, { format });

const send = <T>(path: string, body: unknown = {}, signal?: AbortSignal) =>
  ask<T>(path, {}, signal, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
const part = encodeURIComponent;

export const access = (signal?: AbortSignal) => ask<Access>("access", {}, signal);
export const shares = (signal?: AbortSignal) => ask<ShareList>("shares", {}, signal);
export const makeShare = (request: NewShare) => send<ShareMade>("shares", request);
export const endShare = (id: string) => ask<ShareGone>(`shares/${part(id)}`, {}, undefined, { method: "DELETE" });
/** The link with the address under which we reach the head, also behind a proxy. */
export const shareAddress = (share: ShareMade): string => new URL(share.path, address("./")).href;
/** Logs out: ends the browser's login or shared link. */
export const leave = async (): Promise<void> => {
  await fetch(address("logout"), { method: "POST" });
};

export const runLoad = (id: string, signal?: AbortSignal) => ask<RunLoad>(`${of(id)}/load`, {}, signal);
export const deleteRun = (id: string) => ask<RunDeleted>(of(id), { yes: 1 }, undefined, { method: "DELETE" });
export const incidents = (id: string, signal?: AbortSignal) => ask<IncidentList>(`${of(id)}/incidents`, {}, signal);
export const incident = (id: string, which: string, signal?: AbortSignal) =>
  ask<IncidentDetail>(`${of(id)}/incidents/${part(which)}`, {}, signal);
export const stacks = (id: string, query: Query = {}, signal?: AbortSignal) =>
  ask<StackList>(`${of(id)}/stacks`, query, signal);
export const takeStacks = (id: string, request: TakeStacks) =>
  send<StackList>(`${of(id)}/stacks`, request);
/** Stacks as a flame graph, in the viewer that the head serves. */
export const flameAddress = (id: string, query: Query, title: string): string => {
  const data = address(`api/v1/${of(id)}/flame`, { ...query, format: "speedscope" });
  return `${address("viewers/speedscope/")}#profileURL=${part(data)}&title=${part(title)}`;
};

export const profile = (id: string, session: string, signal?: AbortSignal) =>
  ask<ProfileDetail>(`profiles/${part(id)}/${part(session)}`, {}, signal);
export const deleteProfile = (id: string, session: string) =>
  ask<ProfileDeleted>(`profiles/${part(id)}/${part(session)}`, { yes: 1 }, undefined, { method: "DELETE" });
export const fileAddress = (id: string, session: string, name: string): string =>
  address(`api/v1/profiles/${part(id)}/${part(session)}/files/${part(name)}`);
export const startCapture = (id: string, request: NewCapture) => send<Capture>(`${of(id)}/captures`, request);
export const preflight = (id: string, request: NewCapture) => send<Preflight>(`${of(id)}/captures/preflight`, request);
export const capture = (id: string, session: string, signal?: AbortSignal) =>
  ask<Capture>(`${of(id)}/captures/${part(session)}`, {}, signal);

export const sessions = (signal?: AbortSignal) => ask<SessionList>("sessions", {}, signal);
export const startSession = (name: string) => send<Session>("sessions", name ? { name } : {});
export const stopSession = (id: string) => send<Session>(`sessions/${part(id)}/stop`);
export const resumeSession = (id: string) => send<Session>(`sessions/${part(id)}/resume`);
export const sessionAddress = (id: string, format: string): string =>
  address(`api/v1/sessions/${part(id)}/export`, { format });
/** This path is outside the API: other programs use it, too. */
export const clients = (signal?: AbortSignal) => ask<ClientList>("../../clients", {}, signal);
