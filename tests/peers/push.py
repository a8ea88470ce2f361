"""Pushes and deletes groups with the client library of Prometheus for Python.

    push.py URL KEY

URL names no organisation; the key does.
"""

import sys

from prometheus_client import CollectorRegistry, Gauge, Histogram, delete_from_gateway, push_to_gateway, pushadd_to_gateway
from prometheus_client.exposition import basic_auth_handler

url, key = sys.argv[1:]


def handler(url, method, timeout, headers, data):
    return basic_auth_handler(url, method, timeout, headers, data, "any", key)


registry = CollectorRegistry()
Gauge("backup_bytes", "Bytes of the last backup.", ["disk"], registry=registry).labels("home \"a\"").set(1.25e9)
duration = Histogram("backup_seconds", "Duration.", buckets=[1, 10], registry=registry)
for seconds in [0.5, 5, 50]:
    duration.observe(seconds)
group = {"instance": "a/b", "empty": ""}
push_to_gateway(url, job="backup/nightly", registry=registry, grouping_key=group, handler=handler)

more = CollectorRegistry()
Gauge("backup_files", "Files.", registry=more).set(7)
pushadd_to_gateway(url, job="backup/nightly", registry=more, grouping_key=group, handler=handler)

gone = CollectorRegistry()
Gauge("brief", "A group that is deleted.", registry=gone).set(1)
push_to_gateway(url, job="brief", registry=gone, handler=handler)
delete_from_gateway(url, job="brief", handler=handler)
print("pushed")
