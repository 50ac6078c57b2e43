// The tabs of a run, in order.  A new one is a component that takes `TabProps`, and a line here.

import type { Component } from "svelte";
import type { RunDetail } from "../../lib/types";
import Timeline from "./Timeline.svelte";

export interface TabProps {
  run: RunDetail;
  /** Increases when the run has changed: read it in an effect to fetch again. */
  news: number;
}

export interface Tab {
  id: string;
  title: string;
  component?: Component<TabProps>;
  /** Instead of `component`: loaded when the tab is first opened. */
  load?: () => Promise<{ default: Component<TabProps> }>;
}

export const TABS: readonly Tab[] = [
  { id: "timeline", title: "Timeline", component: Timeline },
  { id: "goodput", title: "Goodput", load: () => import("./Goodput.svelte") },
  { id: "metrics", title: "Metrics", load: () => import("./Metrics.svelte") },
  { id: "devices", title: "Devices", load: () => import("./Devices.svelte") },
  { id: "logs", title: "Logs", load: () => import("./Logs.svelte") },
  { id: "stacks", title: "Stacks", load: () => import("./Stacks.svelte") },
  { id: "profiles", title: "Profiles", load: () => import("./Profiles.svelte") },
  { id: "processes", title: "Processes", load: () => import("./Processes.svelte") },
  { id: "config", title: "Config", load: () => import("./Config.svelte") },
];
