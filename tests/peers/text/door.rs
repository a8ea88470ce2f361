//! End to end: the exposition of a program is imported, and PromQL returns its samples.

use serde_json::Value as Json;

use crate::harness::{Answer, ORG, Server, Start, bootstrap, percent, request};

/// `{"name", "label"="value"}`, in quotes whatever the names are.
fn selector(sample: &Json) -> String {
    let labels = sample["labels"].as_object().expect("labels");
    let labels = labels.iter().map(|(name, value)| format!(", {}={value}", Json::from(name.as_str())));
    format!("{{{}{}}}", sample["name"], labels.collect::<String>())
}

fn value(text: &Json) -> f64 {
    text.as_str().expect("a value").parse().expect("a number")
}

/// The one value that an expression has.
fn one(server: &Server, cookie: &str, expr: &str) -> f64 {
    let data = server.ask(cookie, expr, "now");
    let result = data["result"].as_array().expect("a vector");
    assert_eq!(result.len(), 1, "{expr}: {data}");
    value(&result[0]["value"][1])
}

fn import(server: &Server, secret: &str, content_type: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {secret}");
    let headers = [("Authorization", &*bearer), ("Content-Type", content_type)];
    request("POST", &format!("{}/api/v1/orgs/{ORG}/import", server.url), &headers, Some(body.as_bytes()))
}

#[test]
fn what_a_program_exposes_is_imported_and_answered() {
    let exposed = super::python("text_expose.py", "");
    let exposed: Json = serde_json::from_str(&exposed).expect("JSON");
    let samples = exposed["samples"].as_array().expect("samples");
    let starts = exposed["starts"].as_array().expect("starts");
    let formats = [
        ("text", "text/plain; version=0.0.4; charset=utf-8"),
        ("openmetrics", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        // As `curl --data-binary` sends it.
        ("openmetrics", "application/x-www-form-urlencoded"),
    ];
    for (format, content_type) in formats {
        let dir = tempfile::tempdir().expect("a folder");
        let args = ["serve", "--enable-feature", "promql-experimental-functions,use-start-timestamps"];
        let server = Server::start(&Start { args: &args, dir: dir.path(), env: &bootstrap() });
        let cookie = server.sign_in();
        let (_, secret) = server.api_key(&cookie);
        let answer = import(&server, &secret, content_type, exposed[format].as_str().expect("a document"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let is_openmetrics = format == "openmetrics";
        let series = if is_openmetrics { samples.len() } else { samples.len() + starts.len() };
        assert_eq!(answer.json()["accepted"].as_u64(), u64::try_from(series).ok(), "{}", answer.body);
        assert_eq!(answer.json()["rejected"], 0, "{}", answer.body);

        for sample in samples {
            let found = one(&server, &cookie, &selector(sample));
            assert_eq!(found.to_bits(), value(&sample["value"]).to_bits(), "{format} {sample}");
        }
        let count = one(&server, &cookie, "count({__name__=~\".+\"})");
        assert_eq!(
            Some(count),
            u32::try_from(series).ok().map(f64::from),
            "{format}: starts are no series of OpenMetrics"
        );
        let base = format!("/api/v1/orgs/{ORG}/prometheus/api/v1");
        let cookies = [("Cookie", &*cookie)];
        let said = server.get(&format!("{base}/metadata?metric=shop_stock"), &cookies).json();
        let stock = &said["data"]["shop_stock"][0];
        assert_eq!(
            (&stock["type"], &stock["help"]),
            (&"gauge".into(), &"Stock \\ of \"things\"\nand more.".into())
        );
        if !is_openmetrics {
            continue;
        }
        let since = one(&server, &cookie, "start_timestamp(shop_orders_total{country=\"fr\"})");
        let fr = starts.iter().find(|start| start["labels"]["country"] == "fr").expect("exposed");
        assert_eq!((since * 1_000.0).round(), (value(&fr["value"]) * 1_000.0).floor());
        for (end, series) in [("bucket", 4.0), ("sum", 1.0), ("count", 1.0)] {
            let known = one(&server, &cookie, &format!("count(start_timestamp(shop_seconds_{end}) > 0)"));
            assert_eq!(known.to_bits(), f64::to_bits(series), "{end}");
        }
        for (metric, trace) in [("shop_orders_total", "abc"), ("shop_seconds_bucket", "h1")] {
            let path = format!("{base}/query_exemplars?query={}&start=0&end=now", percent(metric));
            let found = server.get(&path, &cookies).json();
            assert_eq!(found["data"][0]["exemplars"][0]["labels"]["trace_id"], trace, "{found}");
        }
    }
}
