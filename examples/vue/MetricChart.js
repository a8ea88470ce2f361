// <MetricChart>: a chart of a promlet server as a component of Vue 3.

import { defineComponent, h, onMounted } from 'vue';

/** Properties of the element that the component passes on. */
const PROPERTIES = [
  ...['org', 'expr', 'metric', 'match', 'fn', 'window', 'agg', 'by', 'without', 'q', 'k'],
  ...['range', 'start', 'end', 'step', 'refresh', 'token', 'tokenEndpoint', 'src'],
  ...['title', 'unit', 'legend', 'theme', 'data'],
];

/** Loads the element once for each server. */
function loadElement(server) {
  const src = `${server}/embed.js`;
  if ([...document.scripts].some((script) => script.src === src)) return;
  const script = document.createElement('script');
  [script.type, script.src] = ['module', src];
  document.head.append(script);
}

export const MetricChart = defineComponent({
  name: 'MetricChart',
  props: {
    server: { type: String, required: true },
    live: { type: Boolean, default: false },
    ...Object.fromEntries(PROPERTIES.map((name) => [name, { default: null }])),
  },
  emits: ['load', 'error', 'zoom', 'select', 'token-expired'],
  setup(props, { emit }) {
    onMounted(() => loadElement(props.server));
    return () => {
      // The dot makes it a property of the element, also before the element is defined.
      const own = { '.live': props.live };
      for (const name of PROPERTIES) if (props[name] !== null) own[`.${name}`] = props[name];
      return h('metric-chart', {
        ...own,
        onLoad: (event) => emit('load', event),
        onError: (event) => emit('error', event),
        onZoom: (event) => emit('zoom', event),
        onSelect: (event) => emit('select', event),
        onTokenExpired: (event) => emit('token-expired', event),
      });
    };
  },
});
