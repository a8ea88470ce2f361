"""Parses documents with prometheus_client's two parsers: one as JSON on each line of the input, one result on each line."""

import json
import math
import struct
import sys

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as text

CREATED = ("counter", "histogram", "summary")


def bits(value):
    """The parsers read `-0` as an integer, which has no sign, so both zeros are equal here."""
    value = float(value) + 0.0
    return "nan" if math.isnan(value) else struct.pack(">d", value).hex()


def milliseconds(at):
    """Whole milliseconds, rounded down, as both sides read seconds."""
    if at is None:
        return None
    if hasattr(at, "nsec"):
        return at.sec * 1000 + at.nsec // 1_000_000
    return math.floor(at * 1000 + 1e-3)


def group(metric, sample):
    """The labels that a sample shares with the others of its group."""
    labels = dict(sample.labels)
    if sample.name == metric.name + "_bucket":
        labels.pop("le", None)
    if sample.name == metric.name:
        labels.pop("quantile", None)
    return labels


def read(document):
    is_openmetrics = document["format"] == "openmetrics"
    samples = []
    for metric in (openmetrics if is_openmetrics else text)(document["body"]):
        starts = {}
        own = []
        for sample in metric.samples:
            created = sample.name == metric.name + "_created"
            if is_openmetrics and created and metric.type in CREATED:
                starts[json.dumps(sample.labels, sort_keys=True)] = sample.value
            else:
                own.append(sample)
        for sample in own:
            key = json.dumps(group(metric, sample), sort_keys=True)
            exemplar = sample.exemplar and {
                "labels": sample.exemplar.labels,
                "value": bits(sample.exemplar.value),
                "at": milliseconds(sample.exemplar.timestamp),
            }
            if sample.native_histogram is not None:
                raise ValueError("a native histogram")
            samples.append(
                {
                    "name": sample.name,
                    "labels": {name: value for name, value in sample.labels.items() if value},
                    "value": bits(sample.value),
                    "at": milliseconds(sample.timestamp),
                    "exemplar": exemplar,
                    "start": milliseconds(starts.get(key)),
                }
            )
    return samples


for line in sys.stdin:
    try:
        answer = {"samples": read(json.loads(line))}
    except Exception as e:  # noqa: BLE001: every exception is a refusal
        answer = {"error": f"{type(e).__name__}: {e}"}
    print(json.dumps(answer))
