//! Real engines answer the queries of an organisation: Prometheus, and VictoriaMetrics behind
//! vmauth with two tenants. The same samples are also stored here, so each result is compared with
//! that of the local engine, for a member and for an embed token with a scope.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;
#[path = "peers/servers.rs"]
#[expect(dead_code, reason = "shared: each target needs other servers")]
mod servers;

use std::path::Path;
use std::process::Command;

use harness::{Answer, ORG, Server, Start, bootstrap, percent, remote_write, request};
use packages::latest_debian;
use promlet::clock::Clock;
use promlet::model::{Labels, Sample, Timestamp};
use serde_json::{Value, json};
use servers::{Peer, free_port, prometheus_server, started, victoria_metrics, write_to};

/// Queries without a function whose value another engine computes in its own way.
const QUERIES: [&str; 10] = [
    "m",
    "m{team=\"a\"}",
    "sum by (team) (m)",
    "count(m) by (job)",
    // Without the aggregation VictoriaMetrics keeps the name of the metric.
    "sum without () (max_over_time(m[2m]))",
    "sum_over_time(m{job=~\"j.*\"}[1m] offset 30s)",
    "m and on (job) n",
    "absent(nothing{job=\"x\"})",
    "topk(1, m) or n",
    "m > bool 20",
];

/// vmauth before two servers, as the tenants 42 and 7 of a cluster.
fn vmauth(dir: &Path, first: &str, second: &str) -> (Peer, String) {
    let (programs, port) = (latest_debian("victoria", &["victoria-metrics"]), free_port());
    let route = |tenant: &str, url: &str| {
        format!(
            "  - src_paths: [\"/select/{tenant}/prometheus/.*\"]\n    url_prefix: \"{url}\"\n    drop_src_path_prefix_parts: 3\n"
        )
    };
    let (first, second) = (route("42", first), route("7", second));
    let config = dir.join("auth.yml");
    let text = format!("users:\n- bearer_token: \"opensesame\"\n  url_map:\n{first}{second}");
    std::fs::write(&config, text).expect("written");
    let mut command = Command::new(programs.join("usr/bin/vmauth"));
    command
        .arg(format!("-auth.config={}", config.display()))
        .arg(format!("-httpListenAddr=127.0.0.1:{port}"));
    started(&mut command, port)
}

/// Samples of a tenant in the five minutes before `now_s`.
fn samples(now_s: i64, tenant: i64) -> Vec<u8> {
    let series = |name: &str, job: &str, team: &str, factor: i64| {
        let labels = Labels::from_pairs([("__name__", name), ("job", job), ("team", team)]);
        let sample = |n: i64| Sample {
            at: Timestamp::from_s(now_s - 300 + n * 15),
            value: (n * factor + tenant) as f64,
        };
        (labels, (0..=20).map(sample).collect::<Vec<_>>())
    };
    let all = [
        series("m", "j1", "a", 1),
        series("m", "j2", "b", 2),
        series("n", "j1", "a", 3),
        series("n", "x", "b", 4),
    ];
    remote_write(&all)
}

/// The results of all queries, sorted, for a credential.
fn results(server: &Server, header: (&str, &str), now_s: i64) -> Vec<Value> {
    let mut all = Vec::new();
    let range = format!("start={}&end={now_s}&step=15", now_s - 240);
    for query in QUERIES {
        let text = percent(query);
        for path in [format!("query?query={text}&time={now_s}"), format!("query_range?query={text}&{range}")]
        {
            all.push((format!("{query} {path}"), path));
        }
    }
    for path in
        ["labels?match[]=m", "label/team/values?match[]=m", "label/__name__/values", "series?match[]=m"]
    {
        let joint = if path.contains('?') { '&' } else { '?' };
        all.push((path.to_owned(), format!("{path}{joint}start={}&end={now_s}", now_s - 300)));
    }
    let ask = |(name, path): (String, String)| {
        let answer = server.get(&format!("/api/v1/orgs/{ORG}/prometheus/api/v1/{path}"), &[header]);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let mut data = answer.json()["data"].clone();
        let list = if data.is_array() { Some(&mut data) } else { data.get_mut("result") };
        if let Some(list) = list.and_then(Value::as_array_mut) {
            list.sort_by_key(Value::to_string);
        }
        json!([name, data])
    };
    all.into_iter().map(ask).collect()
}

fn set_engine(server: &Server, cookie: &str, engine: &Value) -> Answer {
    let path = format!("{}/api/v1/orgs/{ORG}/engine", server.url);
    let headers = [("Cookie", cookie), ("Content-Type", "application/json")];
    request("PUT", &path, &headers, Some(engine.to_string().as_bytes()))
}

#[test]
fn prometheus_and_the_tenants_of_vmauth_answer_as_the_local_engine_does() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = |name: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        path
    };
    let now_s = Clock::System.now().as_ms() / 15_000 * 15;
    let (_first, first) = victoria_metrics(&folder("first"));
    let (_second, second) = victoria_metrics(&folder("second"));
    let (_auth, auth) = vmauth(&folder("auth"), &first, &second);
    let (_prometheus, prometheus) = prometheus_server(&folder("prometheus"));
    write_to(&first, &samples(now_s, 42));
    write_to(&second, &samples(now_s, 7));
    write_to(&prometheus, &samples(now_s, 42));
    for url in [&first, &second] {
        request("GET", &format!("{url}/internal/force_flush"), &[], None);
    }
    let cluster = |tenant: &str, token: &str| {
        json!({ "engine": "upstream", "url": format!("{auth}/select/{{tenant}}/prometheus"),
            "auth": { "type": "bearer", "token": token }, "tenant": { "type": "path", "value": tenant } })
    };
    let engines = [
        ("Prometheus", 42, json!({ "engine": "upstream", "url": prometheus })),
        ("VictoriaMetrics", 42, json!({ "engine": "upstream", "url": first })),
        ("tenant 42 of vmauth", 42, cluster("42", "opensesame")),
        ("tenant 7 of vmauth", 7, cluster("7", "opensesame")),
    ];
    for (name, tenant, engine) in engines {
        let env = [&bootstrap()[..], &[("PROMLET_OUTBOUND_ALLOW", "127.0.0.0/8")]].concat();
        let store = folder(&format!("store of {name}"));
        let args = ["serve", "--rate-cabinet-rps", "10000"];
        let server = Server::start(&Start { args: &args, dir: &store, env: &env });
        let cookie = server.sign_in();
        let (key, secret) = server.api_key(&cookie);
        assert_eq!(server.write_raw(&secret, &samples(now_s, tenant)).status, 204);
        let minted = server.post_json(
            &format!("/api/v1/orgs/{ORG}/embed/tokens"),
            &[("Cookie", &cookie)],
            &json!({ "api_key_id": key, "ms": { "match": ["team=\"a\""], "metrics": ["m", "nothing"] } }),
        );
        let token = format!("Bearer {}", minted.json()["token"].as_str().expect("a token"));
        let callers = [("Cookie", cookie.as_str()), ("Authorization", token.as_str())];
        let local: Vec<_> = callers.iter().map(|caller| results(&server, *caller, now_s)).collect();
        let set = set_engine(&server, &cookie, &engine);
        assert_eq!(set.status, 200, "{name}: {}", set.body);
        for (caller, local) in callers.iter().zip(local) {
            for (there, here) in results(&server, *caller, now_s).iter().zip(&local) {
                assert_eq!(there, here, "{name}, {}", caller.0);
            }
        }
        for wrong in [cluster("9", "opensesame"), cluster("42", "guess")] {
            let refused = set_engine(&server, &cookie, &wrong);
            assert_eq!((refused.status, refused.code().as_str()), (422, "probe_failed"), "{}", refused.body);
        }
    }
}
