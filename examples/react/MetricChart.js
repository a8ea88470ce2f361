// <MetricChart>: a chart of a promlet server as a component of React 16.8 or newer.

import { createElement, useEffect, useRef } from 'react';

/** The events of the element, by the name of the component's property. */
const EVENTS = {
  onLoad: 'load',
  onError: 'error',
  onZoom: 'zoom',
  onSelect: 'select',
  onTokenExpired: 'token-expired',
};

/** Loads the element once for each server. */
function loadElement(server) {
  const src = `${server}/embed.js`;
  if ([...document.scripts].some((script) => script.src === src)) return;
  const script = document.createElement('script');
  [script.type, script.src] = ['module', src];
  document.head.append(script);
}

/**
 * Properties: `server` is the URL of the server; `className` and `style` are React's; those of EVENTS are
 * functions that get the event; all others are properties of the element, such as `tokenEndpoint`.
 */
export function MetricChart({ server, className, style, ...rest }) {
  const element = useRef(null);
  const set = useRef({});
  const listeners = useRef({});
  listeners.current = rest;

  useEffect(() => loadElement(server), [server]);

  // Each property that is new or has changed, and null for each that is gone.
  useEffect(() => {
    const [before, now] = [set.current, {}];
    for (const [name, value] of Object.entries(rest)) if (!(name in EVENTS)) now[name] = value;
    for (const name of Object.keys({ ...before, ...now })) {
      if (before[name] !== now[name]) element.current[name] = now[name] ?? null;
    }
    set.current = now;
  });

  // The listeners stay; they call the functions of the last rendering.
  useEffect(() => {
    const own = element.current;
    const added = Object.entries(EVENTS).map(([property, name]) => {
      const listener = (event) => listeners.current[property]?.(event);
      own.addEventListener(name, listener);
      return () => own.removeEventListener(name, listener);
    });
    return () => added.forEach((remove) => remove());
  }, []);

  return createElement('metric-chart', { ref: element, class: className, style });
}
