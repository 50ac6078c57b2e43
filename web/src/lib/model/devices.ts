// Devices of a run and of a cluster: their names, their troubles, their rows in a heat map.

import type { DeviceInfo, EventInfo, HeatRow } from "../types";
import { several } from "./units";

export const deviceKey = (host: string, device: string): string => `${host}/${device}`;

export function splitKey(key: string): { host: string; device: string } {
  const at = key.lastIndexOf("/");
  return { host: key.slice(0, at), device: key.slice(at + 1) };
}

export function rowWords(row: HeatRow): string {
  const first = `${row.host} ${row.device}`;
  if (row.devices > 1) {
    const last = row.last_host === row.host ? row.last_device : `${row.last_host} ${row.last_device}`;
    return `${first} – ${last} (${several(row.devices, "device")})`;
  }
  return row.rank === null ? first : `${first}, rank ${row.rank}`;
}

export interface Stretch {
  host: string;
  first: number;
  count: number;
}

/** Consecutive rows of the same host. */
export function hostStretches(rows: readonly { host: string }[]): Stretch[] {
  const stretches: Stretch[] = [];
  rows.forEach((row, at) => {
    const last = stretches[stretches.length - 1];
    if (last?.host === row.host) last.count += 1;
    else stretches.push({ host: row.host, first: at, count: 1 });
  });
  return stretches;
}

/** Those that have room for a label of that height. */
export function labelled(stretches: readonly Stretch[], rowHeight: number, labelHeight: number): Stretch[] {
  let free = -Infinity;
  return stretches.filter((one) => {
    const top = one.first * rowHeight;
    if (top < free) return false;
    free = top + labelHeight;
    return true;
  });
}

export interface Measure {
  id: string;
  title: string;
  unit: string;
  of: (device: DeviceInfo) => number | null;
  /** The value with the full colour; null: the largest value. */
  full: number | null;
}

export const MEASURES: readonly Measure[] = [
  { id: "utilization", title: "Utilisation", unit: "%", of: (one) => one.utilization_percent, full: 100 },
  { id: "tensor", title: "Tensor activity", unit: "%", of: (one) => one.tensor_percent, full: 100 },
  { id: "memory", title: "Memory", unit: "%", of: (one) => one.memory_percent, full: 100 },
  { id: "power", title: "Power", unit: "W", of: (one) => one.power_watts, full: null },
  { id: "temperature", title: "Temperature", unit: "°C", of: (one) => one.temperature_celsius, full: null },
];

export const measure = (id: string | undefined): Measure =>
  MEASURES.find((one) => one.id === id) ?? (MEASURES[0] as Measure);

/** 1 … 255 for a reading, 0 for none. */
export function level(value: number | null, full: number): number {
  if (value === null || !Number.isFinite(value)) return 0;
  return 1 + Math.round((Math.min(Math.max(value, 0), full) / (full || 1)) * 254);
}

export interface HostDevices {
  host: string;
  devices: DeviceInfo[];
  hurting: number;
}

const inNumbers = (a: string, b: string): number => a.localeCompare(b, "en", { numeric: true });

/** Devices by host, sorted by number. */
export function byHost(devices: readonly DeviceInfo[]): HostDevices[] {
  const hosts = new Map<string, DeviceInfo[]>();
  for (const one of devices) hosts.set(one.host, [...(hosts.get(one.host) ?? []), one]);
  return [...hosts]
    .sort(([a], [b]) => inNumbers(a, b))
    .map(([host, own]) => ({
      host,
      devices: own.sort((a, b) => inNumbers(a.index || a.device, b.index || b.device)),
      hurting: own.filter((one) => one.troubles.length > 0).length,
    }));
}

export const isBad = (device: DeviceInfo): boolean => device.troubles.some((one) => one.hurt !== "idle");

export const troubleWords = (device: DeviceInfo): string => device.troubles.map((one) => one.words).join("; ");

const HURTS: Record<string, string> = {
  lost: "lost", unreadable: "unreadable", silent: "silent", xid: "with an XID", thermal: "too hot",
  hardware: "slowed by hardware", memory_errors: "with memory errors", power: "at the power cap",
  memory_full: "with full memory", idle: "idle",
};

/** `2 silent, 1 too hot`; empty without trouble. */
export const hurtWords = (hurting: Record<string, number>): string =>
  Object.keys(HURTS)
    .filter((hurt) => hurting[hurt])
    .map((hurt) => `${hurting[hurt]} ${HURTS[hurt]}`)
    .join(", ");

export const DEVICE_EVENTS = ["gpu_xid", "device_lost", "device_added", "device_unreadable", "collector_stuck", "collector_resumed"];

/** A device event in one line. */
export function deviceEventWords(event: EventInfo): string {
  const { body } = event;
  const text = (name: string): string => (typeof body[name] === "string" ? body[name] : "");
  const device = text("device");
  switch (event.kind) {
    case "gpu_xid":
      return `${device} XID ${String(body["xid"] ?? "?")}${text("meaning") ? `: ${text("meaning")}` : ""}`;
    case "device_lost":
      return `${device} was lost${text("why") ? `: ${text("why")}` : ""}`;
    case "device_added":
      return `${device} was added`;
    case "device_unreadable":
      return `${device} cannot be read${text("metric") ? ` (${text("metric")})` : ""}${text("why") ? `: ${text("why")}` : ""}`;
    case "collector_stuck":
      return `collector ${text("collector")} hangs in its driver`;
    case "collector_resumed":
      return `collector ${text("collector")} works again`;
    default:
      return event.kind.replaceAll("_", " ");
  }
}
