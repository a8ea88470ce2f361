"""Measures a few things with OpenTelemetry's SDK for Python and exports them once, to every given URL.

    otlp.py protobuf|json KEY URL...

KEY is sent to the first URL. Every URL gets the same data points, in gzip. Prints the time of the points, in seconds.
"""

import os
import sys

os.environ["OTEL_EXPORTER_OTLP_METRICS_COMPRESSION"] = "gzip"

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

encoding, key, *urls = sys.argv[1:]
if encoding == "json":
    from opentelemetry.exporter.otlp.json.http.metric_exporter import OTLPMetricExporter
else:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter


class Each(MetricExporter):
    """Exports its input to every URL, so that all of them receive the same points."""

    def __init__(self):
        super().__init__()
        self.exporters = []
        for url in urls:
            headers = {"Authorization": f"Bearer {key}"} if url == urls[0] else {}
            self.exporters.append(OTLPMetricExporter(endpoint=url, headers=headers))
        self.results = []
        self.time = 0

    def export(self, metrics_data, timeout_millis=10_000, **kwargs):
        # The shutdown calls it once more.
        if self.results:
            return MetricExportResult.SUCCESS
        for resource in metrics_data.resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        self.time = max(self.time, point.time_unix_nano)
        self.results += [exporter.export(metrics_data) for exporter in self.exporters]
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis=10_000):
        return True

    def shutdown(self, timeout_millis=30_000, **kwargs):
        for exporter in self.exporters:
            exporter.shutdown()


def temperature(options: CallbackOptions):
    yield Observation(21.5, {"room.name": "kitchen"})
    yield Observation(-3, {"room.name": "cellar"})


resource = Resource({
    "service.namespace": "eu",
    "service.name": "shop",
    "service.instance.id": "i-1",
    "deployment.environment.name": "prod",
    "host.name": "a1",
    "k8s.pod.name": "shop-0",
    "retries": 3,
})
exporter = Each()
# One export, at the end: nothing is sent before.
reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
views = [View(instrument_name="*.exponential", aggregation=ExponentialBucketHistogramAggregation())]
provider = MeterProvider(resource=resource, metric_readers=[reader], views=views)
meter = provider.get_meter("tests.peers", "1.0")

requests = meter.create_counter("http.server.requests", unit="{request}", description="Requests that came in.")
requests.add(7, {"http.request.method": "GET", "http.response.status_code": 200})
requests.add(2, {"http.request.method": "POST", "http.response.status_code": 500})
meter.create_counter("cpu.time", unit="s").add(1.25, {"cpu": "0"})
connections = meter.create_up_down_counter("pool.connections", unit="{connection}")
connections.add(5, {"pool": "main"})
connections.add(-2, {"pool": "main"})
meter.create_gauge("memory.utilization", unit="1").set(0.375)
meter.create_observable_gauge("temperature", [temperature], unit="Cel")
latency = meter.create_histogram("http.server.duration", unit="s", explicit_bucket_boundaries_advisory=[0.1, 0.5, 1, 10])
for seconds in (0.05, 0.3, 0.3, 0.7, 42):
    latency.record(seconds, {"http.route": "/api/{id}"})
sizes = meter.create_histogram("body.size.exponential", unit="By")
for size in (1, 2, 4, 4, 1000):
    sizes.record(size, {"direction": "in"})

provider.force_flush()
provider.shutdown()
results = exporter.results
if len(results) != len(urls) or any(result != MetricExportResult.SUCCESS for result in results):
    sys.exit(f"the exports ended as {results}")
print(exporter.time / 1e9)
