"""Writes points with InfluxDB's client library for Python.

    influx.py URL TOKEN SECONDS

SECONDS is the time of the points. Prints the health that the client sees.
"""

import sys

from influxdb_client import InfluxDBClient, Point, WritePrecision
from influxdb_client.client.write_api import SYNCHRONOUS

url, token, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3])
with InfluxDBClient(url=url, token=token, org="acme", enable_gzip=True) as client:
    point = (
        Point("room one")
        .tag("floor", "2, left")
        .field("temperature", 21.5)
        .field("people", 3)
        .field("open", True)
        .field("note", 'a "quoted" note')
        .time(seconds, WritePrecision.S)
    )
    client.write_api(write_options=SYNCHRONOUS).write(bucket="lab", record=point)
    print(client.ping())
