// Types of <metric-chart>, <metric-alerts> and <metric-dashboard>. Save this file beside your sources, as `promlet-embed.d.ts` or so, and
// include it in the compilation; or refer to it with `/// <reference path="..." />`.

/** A range in unix seconds, with both ends. */
export interface MetricRange {
  start: number;
  end: number;
}

/** One series with its value at a time. The value may be infinite. */
export interface MetricValue {
  /** What the legend shows. */
  name: string;
  labels: Readonly<Record<string, string>>;
  value: number;
}

/** The detail of `select`. */
export interface MetricSelection {
  /** Unix seconds. */
  time: number;
  /** All visible series with a value at that time, the highest first. */
  series: MetricValue[];
  /** The series at the pointer; null if the keyboard chose the time. */
  nearest: MetricValue | null;
}

/** The detail of `error` and `token-expired`. */
export interface MetricError {
  /** A code of the API, or one of the element such as `no_credential` and `unreachable`. */
  code: string;
  /** The reason, for the author of the page. */
  message: string;
  /** What the author can do; '' if the reason says it all. */
  hint: string;
  /** The HTTP status; 0 without a response. */
  status: number;
  /** The id of the refused request in the server's log; '' without one. */
  requestId: string;
  /** Seconds that the server asks to wait; 0 if it does not. */
  retryAfter: number;
}

/** A row of a matrix: points in the order of time, in unix seconds, with the value as text. */
export interface MetricSeries {
  metric: Record<string, string>;
  values: [time: number, value: string][];
}

/** A response of `query/range`. */
export interface MetricResponse {
  data: { resultType: 'matrix'; result: MetricSeries[] };
  /** The grid of the points, in unix seconds and seconds. */
  query: { start: number; end: number; step: number };
  stats?: Record<string, number>;
  warnings?: string[];
  infos?: string[];
}

/** The properties that mirror the attributes of the same name. */
export interface MetricChartProperties {
  org: string;
  expr: string;
  metric: string;
  match: string;
  fn: string;
  window: string;
  agg: string;
  by: string;
  without: string;
  q: string;
  k: string;
  range: string;
  /** Unix seconds; null without the attribute. */
  start: number | null;
  end: number | null;
  step: string;
  /** Seconds; null without the attribute. */
  refresh: number | null;
  live: boolean;
  token: string;
  tokenEndpoint: string;
  src: string;
  title: string;
  unit: string;
  legend: string;
  theme: string;
}

/** The events of a chart, by name. */
export interface MetricChartEventMap {
  load: CustomEvent<MetricResponse>;
  error: CustomEvent<MetricError>;
  /** Cancelable. The detail is null when the whole range is shown again. */
  zoom: CustomEvent<MetricRange | null>;
  select: CustomEvent<MetricSelection>;
  'token-expired': CustomEvent<MetricError>;
}

export type MetricChartState = 'idle' | 'loading' | 'drawn' | 'empty' | 'error';

/** The element. Its `load` and `error` do not bubble, like those of the platform. */
export interface MetricChartElement extends HTMLElement, MetricChartProperties {
  title: string;
  /** The response that is drawn; null without one. A value is drawn without a query. */
  data: MetricResponse | null;
  readonly state: MetricChartState;
  /** What is on the screen. */
  readonly drawn: { series: number; points: number; answer: MetricResponse | null };
  /** Queries again. Resolves once the result is on the screen. */
  reload(): Promise<void>;
  /** Shows a part of the range, or with null the whole, unless a listener of `zoom` prevents it. */
  zoomTo(range: MetricRange | null): void;
  addEventListener<Name extends keyof MetricChartEventMap>(
    name: Name,
    listener: (this: MetricChartElement, event: MetricChartEventMap[Name]) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    name: string,
    listener: EventListenerOrEventListenerObject,
    options?: boolean | AddEventListenerOptions,
  ): void;
  removeEventListener<Name extends keyof MetricChartEventMap>(
    name: Name,
    listener: (this: MetricChartElement, event: MetricChartEventMap[Name]) => void,
    options?: boolean | EventListenerOptions,
  ): void;
  removeEventListener(
    name: string,
    listener: EventListenerOrEventListenerObject,
    options?: boolean | EventListenerOptions,
  ): void;
}

/**
 * The element in JSX of React 19, which sets properties of custom elements. Its listeners are
 * `onload`, `onerror`, `onzoom`, `onselect` and `ontoken-expired`.
 */
export type MetricChartJsx = Partial<MetricChartProperties> & {
  [Name in keyof MetricChartEventMap as `on${Name}`]?: (event: MetricChartEventMap[Name]) => void;
} & {
  data?: MetricResponse | null;
  id?: string;
  key?: string | number | null;
  class?: string;
  className?: string;
  slot?: string;
  hidden?: boolean;
  style?: any;
  ref?: ((element: MetricChartElement | null) => void) | { current: MetricChartElement | null } | null;
};

/** An alert in a response of `alerts`. */
export interface MetricAlert {
  state: 'firing' | 'pending';
  /** `alertname` and all others. */
  labels: Record<string, string>;
  /** Unix seconds. */
  active_since: number;
  /** Unix seconds; null of a pending alert. */
  firing_since: number | null;
  /** Those that the token grants. */
  annotations: Record<string, string>;
  /** Absent unless the token grants it. */
  value?: string;
}

/** A response of `alerts`: firing before pending alerts, the newest first. */
export interface MetricAlertsResponse {
  data: MetricAlert[];
  /** The number of alerts of all pages. */
  counts: { firing: number; pending: number };
  next_cursor: string | null;
}

/** The properties that mirror the attributes of the same name. */
export interface MetricAlertsProperties {
  org: string;
  /** `firing`, `pending` or, for both, ''. */
  alertState: string;
  /** A selector such as `{severity="page"}`. */
  match: string;
  limit: number | null;
  /** Seconds; null without the attribute. */
  refresh: number | null;
  token: string;
  tokenEndpoint: string;
  src: string;
  title: string;
  theme: string;
}

/** The events of a list of alerts, by name. */
export interface MetricAlertsEventMap {
  load: CustomEvent<MetricAlertsResponse>;
  error: CustomEvent<MetricError>;
  'token-expired': CustomEvent<MetricError>;
}

/** The element of embed-alerts.js. Its `load` and `error` do not bubble, like those of the platform. */
export interface MetricAlertsElement extends HTMLElement, MetricAlertsProperties {
  title: string;
  /** The response that is shown; null without one. A value is shown without a request. */
  data: MetricAlertsResponse | null;
  readonly state: MetricChartState;
  /** Requests again. Resolves once the result is on the screen. */
  reload(): Promise<void>;
  addEventListener<Name extends keyof MetricAlertsEventMap>(
    name: Name,
    listener: (this: MetricAlertsElement, event: MetricAlertsEventMap[Name]) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    name: string,
    listener: EventListenerOrEventListenerObject,
    options?: boolean | AddEventListenerOptions,
  ): void;
  removeEventListener<Name extends keyof MetricAlertsEventMap>(
    name: Name,
    listener: (this: MetricAlertsElement, event: MetricAlertsEventMap[Name]) => void,
    options?: boolean | EventListenerOptions,
  ): void;
  removeEventListener(
    name: string,
    listener: EventListenerOrEventListenerObject,
    options?: boolean | EventListenerOptions,
  ): void;
}

/** The element in JSX of React 19. Its listeners are `onload`, `onerror` and `ontoken-expired`. */
export type MetricAlertsJsx = Partial<MetricAlertsProperties> & {
  [Name in keyof MetricAlertsEventMap as `on${Name}`]?: (event: MetricAlertsEventMap[Name]) => void;
} & {
  data?: MetricAlertsResponse | null;
  id?: string;
  key?: string | number | null;
  class?: string;
  className?: string;
  slot?: string;
  hidden?: boolean;
  style?: any;
  ref?: ((element: MetricAlertsElement | null) => void) | { current: MetricAlertsElement | null } | null;
};

/** Everything that a dashboard shows, as plain data: JSON keeps it. */
export interface MetricDashboardSnapshot {
  view: unknown;
  /** By the names of queries. */
  answers: Record<string, unknown>;
  /** Milliseconds. */
  range: { from: number; to: number };
  /** The values of variables. */
  selections: Record<string, string[]>;
}

/** The detail of `select` of a dashboard. */
export interface MetricDashboardSelection extends MetricSelection {
  /** The id of the panel, and its title as the dashboard has it. */
  panel: number | null;
  title: string;
}

export interface MetricDashboardEventMap {
  load: CustomEvent<{ uid: string; title: string; version: number }>;
  error: CustomEvent<MetricError>;
  zoom: CustomEvent<MetricRange | null>;
  select: CustomEvent<MetricDashboardSelection>;
  'token-expired': CustomEvent<MetricError>;
}

/** The element of embed-dashboard.js. */
export interface MetricDashboardElement extends HTMLElement {
  /** What is shown; null before that. One that is set is shown without a request, and null asks the server again. */
  snapshot: MetricDashboardSnapshot | null;
  /** Asks for new data. */
  reload(): void;
  addEventListener<Name extends keyof MetricDashboardEventMap>(
    name: Name,
    listener: (this: MetricDashboardElement, event: MetricDashboardEventMap[Name]) => void,
    options?: boolean | AddEventListenerOptions,
  ): void;
  addEventListener(
    name: string,
    listener: EventListenerOrEventListenerObject,
    options?: boolean | AddEventListenerOptions,
  ): void;
  removeEventListener<Name extends keyof MetricDashboardEventMap>(
    name: Name,
    listener: (this: MetricDashboardElement, event: MetricDashboardEventMap[Name]) => void,
    options?: boolean | EventListenerOptions,
  ): void;
  removeEventListener(
    name: string,
    listener: EventListenerOrEventListenerObject,
    options?: boolean | EventListenerOptions,
  ): void;
}

declare global {
  interface HTMLElementTagNameMap {
    'metric-alerts': MetricAlertsElement;
    'metric-chart': MetricChartElement;
    'metric-dashboard': MetricDashboardElement;
  }
}
