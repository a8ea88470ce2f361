"""Prints the exposition of a prometheus_client program, in both formats, and the samples that it represents."""

import json

from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, Info, Summary, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

registry = CollectorRegistry()
orders = Counter("shop_orders", "Orders.", ["country"], registry=registry)
orders.labels("de").inc(3, exemplar={"trace_id": "abc"})
orders.labels("fr").inc(1)
stock = Gauge("shop_stock", 'Stock \\ of "things"\nand more.', ["item"], registry=registry)
stock.labels('a "b"\\\nc,}').set(-1.5)
stock.labels("küche").set(float("inf"))
seconds = Histogram("shop_seconds", "Seconds.", ["path"], buckets=(0.1, 0.5, 1), registry=registry)
seconds.labels("/a").observe(0.3, exemplar={"trace_id": "h1"})
seconds.labels("/a").observe(7)
received = Summary("shop_bytes", "Bytes.", registry=registry, unit="bytes")
received.observe(100)
Info("shop_build", "Build.", registry=registry).info({"version": "1.2.3"})
Enum("shop_state", "State.", states=["open", "closed"], registry=registry).state("closed")
Gauge("shop.temperature", "Beyond ASCII.", ["room name"], registry=registry).labels("küche").set(21.5)

samples = []
starts = []
for metric in registry.collect():
    for sample in metric.samples:
        entry = {"name": sample.name, "labels": sample.labels, "value": repr(float(sample.value))}
        is_start = sample.name == metric.name + "_created" and metric.type in ("counter", "histogram", "summary")
        (starts if is_start else samples).append(entry)

print(
    json.dumps(
        {
            "text": generate_latest(registry, escaping="allow-utf-8").decode(),
            "openmetrics": generate_openmetrics(registry, escaping="allow-utf-8").decode(),
            "samples": samples,
            "starts": starts,
        }
    )
)
