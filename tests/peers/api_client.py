"""Asks as the package prometheus-api-client does.

    api_client.py URL KEY

URL names no organisation; the key does. Prints the names of metrics and the value of a query.
"""

import json
import sys

from prometheus_api_client import PrometheusConnect

url, key = sys.argv[1:]
client = PrometheusConnect(url=url, headers={"Authorization": f"bearer {key}"}, disable_ssl=True)
names = client.all_metrics()
value = client.custom_query("backup_files")[0]["value"][1]
print(json.dumps({"connected": client.check_prometheus_connection(), "names": names, "value": value}))
