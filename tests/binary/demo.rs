//! `promlet demo`: its output can be pasted, and the queries return data at once.

use std::process::Command;

use crate::harness::{Server, Start, request};

#[test]
fn the_demo_prints_a_link_a_token_and_queries_that_return_data_at_once() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::start(&Start { args: &["demo"], dir: dir.path(), env: &[] });
    let (mut link, mut token, mut curls) = (None, None, Vec::new());
    while link.is_none() || token.is_none() || curls.len() < 3 {
        let line = server.line(|line| !line.trim().is_empty());
        let line = line.trim();
        if line.starts_with("curl ") {
            curls.push(line.to_owned());
        } else if let Some(at) =
            line.find("http").filter(|_| line.contains("/api/v1/auth/magic-link/verify?token="))
        {
            link = Some(line[at..].to_owned());
        } else if let Some(at) = line.find("eyJ") {
            token.get_or_insert_with(|| line[at..].split_whitespace().next().unwrap_or_default().to_owned());
        }
    }
    for curl in &curls {
        let data = paste(curl);
        let results = data["data"]["result"].as_array().map(Vec::len).unwrap_or_default();
        assert!(results > 0, "{curl}: {data}");
    }

    let signed_in = request("GET", &link.expect("printed"), &[], None);
    assert_eq!(signed_in.status, 200, "{}", signed_in.body);
    let cookie = signed_in.session_cookie();
    let me = server.get("/api/v1/auth/me", &[("Cookie", &cookie)]).json();
    assert_eq!(me["orgs"][0]["slug"], "demo");
    for expr in [
        "count(host_memory_total_bytes)",
        "count(shop_http_requests_total)",
        "count({__name__=~\"promlet_.+\"})",
    ] {
        let path = format!("/api/v1/orgs/demo/query/expr-instant?expr={}", crate::harness::percent(expr));
        let answer = server.get(&path, &[("Cookie", &cookie)]).json();
        assert!(answer["data"]["result"][0]["value"][1].is_string(), "{expr}: {answer}");
    }
    let bearer = format!("Bearer {}", token.expect("printed"));
    let embedded = server.get(
        "/api/v1/orgs/demo/query/range?metric=shop_http_requests_total&fn=rate&agg=sum",
        &[("Authorization", &bearer)],
    );
    assert_eq!(embedded.status, 200, "{}", embedded.body);
    let titles = |server: &Server| -> Vec<(String, u64)> {
        let list = server.get("/api/v1/orgs/demo/dashboards", &[("Cookie", &cookie)]).json();
        let rows = list["data"].as_array().expect("dashboards").iter();
        rows.map(|row| {
            let title = row["title"].as_str().unwrap_or_default();
            (title.to_owned(), row["version"].as_u64().unwrap_or_default())
        })
        .collect()
    };
    let built_in = ["Demo shop", "Host", "promlet"].map(|title| (title.to_owned(), 1));
    assert_eq!(titles(&server), built_in);
    assert!(server.terminate().success(), "SIGTERM ends the demo with 0");

    // A second start continues where the first one ended, and returns data at once as well.
    let server = Server::start(&Start { args: &["demo"], dir: dir.path(), env: &[] });
    let curl = server.line(|line| line.trim().starts_with("curl "));
    assert_eq!(titles(&server), built_in, "a dashboard that is there stays as it is");
    assert!(paste(curl.trim())["data"]["result"].as_array().is_some_and(|r| !r.is_empty()));
}

/// Runs a printed line in a shell, as a person would.
fn paste(line: &str) -> serde_json::Value {
    let output = Command::new("sh").args(["-c", line]).output().expect("a shell");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{line}: {e}: {}", String::from_utf8_lossy(&output.stdout)))
}
