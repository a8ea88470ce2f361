// A component of React 19 with <metric-chart>.

import type { JSX } from 'react';
import type { MetricChartJsx } from '../../../src/ui/assets/embed.js';

declare module 'react' {
  namespace JSX {
    interface IntrinsicElements {
      'metric-chart': MetricChartJsx;
    }
  }
}

export function Requests(): JSX.Element {
  return (
    <metric-chart
      org="acme"
      expr="up"
      live
      refresh={30}
      tokenEndpoint="/metrics-token"
      onzoom={({ detail }) => detail?.start.toFixed()}
      ontoken-expired={({ detail }) => detail.code.trim()}
    />
  );
}

// @ts-expect-error
export const wrong = <metric-chart org={7} />;
