//! Hostile requests: each gets a clear error with a stable code, and the server continues to work.

use promlet::clock::Clock;
use promlet::model::{Labels, Sample};
use serde_json::json;

use crate::harness::{Answer, EMAIL, ORG, PASSWORD, Server, percent, remote_write, request};

fn one_sample() -> Vec<(Labels, Vec<Sample>)> {
    vec![(
        Labels::from_pairs([("__name__", "hostile_test"), ("job", "a")]),
        vec![Sample { at: Clock::System.now(), value: 1.0 }],
    )]
}

fn base64url(bytes: &[u8]) -> String {
    data_encoding::BASE64URL_NOPAD.encode(bytes)
}

struct Victim {
    server: Server,
    cookie: String,
    key: String,
    secret: String,
}

impl Victim {
    fn query(&self, expr: &str, headers: &[(&str, &str)]) -> Answer {
        self.server.get(&format!("/api/v1/orgs/{ORG}/query/expr-instant?expr={}", percent(expr)), headers)
    }

    fn login(&self, password: &str) -> Answer {
        self.server.post_json("/api/v1/auth/login", &[], &json!({"email": EMAIL, "password": password}))
    }
}

/// Checks that the response is a clear error: the status, the stable code, the media type, and a
/// request id.
fn expect(what: &str, answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.code().as_str()), (status, code), "{what}: {}", answer.body);
    let media = answer.header("content-type").unwrap_or_default();
    assert!(media.starts_with("application/problem+json"), "{what}: {media}");
    assert!(answer.header("x-request-id").is_some(), "{what}");
}

#[test]
fn hostile_requests_get_clear_errors_and_leave_the_server_unharmed() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let server = Server::serve(dir.path());
    let cookie = server.sign_in();
    let (key, secret) = server.api_key(&cookie);
    let victim = Victim { server, cookie, key, secret };
    assert_eq!(victim.server.write(&victim.secret, &one_sample()).status, 204);

    invalid_credentials(&victim);
    invalid_bodies(&victim);
    expressions_beyond_the_caps(&victim);
    parameters_of_replacement_characters(&victim);

    let Victim { server, cookie, .. } = &victim;
    assert_eq!(victim.login(PASSWORD).status, 200, "the server is unharmed");
    // A whole second, not before the sample.
    let now = (Clock::System.now().as_s() + 1).to_string();
    assert_eq!(server.ask(cookie, "hostile_test", &now)["result"][0]["value"][1], "1");
    assert!(victim.server.terminate().success());
}

fn invalid_credentials(victim: &Victim) {
    let Victim { server, cookie, key, secret } = victim;
    expect("a wrong password", &victim.login("wrong"), 401, "invalid_credentials");
    let forged = format!("ms_session=ses_{}", "A".repeat(43));
    expect("a forged cookie", &victim.query("1", &[("Cookie", &forged)]), 401, "session_invalid");
    expect("no credential", &victim.query("1", &[]), 401, "unauthenticated");
    let now = Clock::System.now().as_s();
    let none = format!(
        "Bearer {}.{}.",
        base64url(json!({"alg": "none", "typ": "JWT", "kid": key}).to_string().as_bytes()),
        base64url(
            json!({"aud": "ms-embed", "org": ORG, "iat": now, "exp": now + 600}).to_string().as_bytes()
        )
    );
    expect("alg none", &victim.query("1", &[("Authorization", &none)]), 401, "token_invalid");
    expect(
        "alg none beside a good cookie",
        &victim.query("1", &[("Authorization", &none), ("Cookie", cookie)]),
        401,
        "token_invalid",
    );
    let raw = format!("Bearer {secret}");
    expect(
        "a raw API key on a data path",
        &victim.query("1", &[("Authorization", &raw)]),
        401,
        "api_key_not_allowed",
    );
    let foreign = server.get("/api/v1/orgs/other/query/expr-instant?expr=1", &[("Cookie", cookie)]);
    expect("a foreign organisation", &foreign, 404, "org_not_found");
    let rebound = victim.query("1", &[("Cookie", cookie), ("Host", "evil.example")]);
    expect("a foreign host name", &rebound, 421, "host_not_allowed");
    let cross_site =
        [("Cookie", &**cookie), ("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site")];
    let posted = server.post_json("/api/v1/orgs", &cross_site, &json!({"slug": "x1"}));
    expect("a cross-site post", &posted, 403, "csrf_rejected");
}

/// A replacement character may stand for invalid UTF-8 and must be told from it, in one pass over
/// the form.
fn parameters_of_replacement_characters(victim: &Victim) {
    let parameter = format!("&a={}", "%ef%bf%bd".repeat(22));
    let form = format!("query=1{}", parameter.repeat(950));
    let headers = [("Cookie", &*victim.cookie), ("Content-Type", "application/x-www-form-urlencoded")];
    let url = format!("{}/api/v1/orgs/{ORG}/prometheus/api/v1/query", victim.server.url);
    let answer = request("POST", &url, &headers, Some(form.as_bytes()));
    assert_eq!(
        (answer.status, answer.json()["data"]["result"][1].as_str()),
        (200, Some("1")),
        "{}",
        answer.body
    );
    let answer = request("POST", &url, &headers, Some(format!("{form}&b=%ff").as_bytes()));
    assert_eq!(
        (answer.status, answer.json()["errorType"].as_str()),
        (400, Some("bad_data")),
        "{}",
        answer.body
    );
}

fn invalid_bodies(victim: &Victim) {
    let bearer = format!("Bearer {}", victim.secret);
    let machine = [
        ("Authorization", &*bearer),
        ("Content-Type", "application/x-protobuf"),
        ("Content-Encoding", "snappy"),
    ];
    let url = format!("{}/api/v1/orgs/{ORG}/write", victim.server.url);
    let write = |body: &[u8]| request("POST", &url, &machine, Some(body));
    let body = remote_write(&one_sample());
    expect("truncated snappy", &write(&body[..body.len() - 3]), 400, "bad_request");
    expect(
        "snappy that declares 4 GiB",
        &write(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]),
        413,
        "body_too_large",
    );
    expect("an oversized body", &write(&vec![0; 9 << 20]), 413, "body_too_large");
    expect("an empty body", &write(&[]), 400, "bad_request");
    expect("an oversized login", &victim.login(&"x".repeat(17 << 10)), 413, "body_too_large");
}

fn expressions_beyond_the_caps(victim: &Victim) {
    // As deep as a URL allows. A form allows much deeper nesting.
    let deep = format!("{}1{}", "(".repeat(2_000), ")".repeat(2_000));
    let long = vec!["1"; 3_000].join("+");
    let regexes = format!("x{{{}}}", vec!["a=~\"\\\\w{60}\""; 17].join(","));
    let hostile = [
        &*deep,
        "hostile_test offset inf",
        "hostile_test[1e30]",
        &*long,
        &*regexes,
        "sum(",
        "x{a=\"b\" or c=~\".*\"}",
        "\u{0}",
    ];
    for expr in hostile {
        let answer = victim.query(expr, &[("Cookie", &victim.cookie)]);
        expect(&expr[..expr.len().min(40)], &answer, 400, "bad_expr");
        assert_eq!(answer.json()["errorType"], "bad_data", "{expr:.40}");
    }
    let url = format!("{}/api/v1/orgs/{ORG}/prometheus/api/v1/query", victim.server.url);
    let headers = [("Cookie", &*victim.cookie), ("Content-Type", "application/x-www-form-urlencoded")];
    let form = format!("query={}", percent(&"(".repeat(60_000)));
    let answer = request("POST", &url, &headers, Some(form.as_bytes()));
    assert_eq!(
        (answer.status, answer.json()["errorType"].as_str()),
        (400, Some("bad_data")),
        "{:.200}",
        answer.body
    );
}
