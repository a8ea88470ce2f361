"""Measures with OpenTelemetry's SDK for Python in delta temporality, and exports several times.

    otlp_delta.py URL KEY

URL names no organisation; the key does. Prints the totals.
"""

import json
import sys

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, UpDownCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

url, key = sys.argv[1:]
delta = AggregationTemporality.DELTA
exporter = OTLPMetricExporter(
    endpoint=f"{url}/v1/metrics",
    headers={"Authorization": f"Bearer {key}"},
    preferred_temporality={Counter: delta, Histogram: delta, UpDownCounter: delta},
)
reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
views = [View(instrument_name="sizes", aggregation=ExponentialBucketHistogramAggregation())]
provider = MeterProvider(metric_readers=[reader], views=views, resource=Resource({"service.name": "delta"}))
meter = provider.get_meter("test")
orders = meter.create_counter("orders")
open_orders = meter.create_up_down_counter("open_orders")
latency = meter.create_histogram("latency", unit="s")
sizes = meter.create_histogram("sizes")
totals = {"orders": 0, "open": 0, "latency": 0, "latency_sum": 0.0, "sizes": 0}
for round in range(5):
    # Sizes of each round lie further apart, so the scale of each round differs.
    for n in range(1, 4):
        orders.add(n, {"shop": "oslo"})
        open_orders.add(n if round % 2 == 0 else -n)
        latency.record(n / 4)
        sizes.record(float(n) ** (round + 1))
        totals["orders"] += n
        totals["open"] += n if round % 2 == 0 else -n
        totals["latency"] += 1
        totals["latency_sum"] += n / 4
        totals["sizes"] += 1
    assert provider.force_flush(), "an export failed"
provider.shutdown()
print(json.dumps(totals))
