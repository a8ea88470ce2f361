//! The list of hostile things, each a clear error with a stable code, and a server that serves on.

use promlet::clock::Clock;
use promlet::model::{Labels, Sample};
use serde_json::json;

use crate::harness::{EMAIL, ORG, PASSWORD, Server, percent, remote_write, request};

fn one_sample() -> Vec<(Labels, Vec<Sample>)> {
    vec![(
        Labels::from_pairs([("__name__", "hostile_test"), ("job", "a")]),
        vec![Sample { at: Clock::System.now(), value: 1.0 }],
    )]
}

fn base64url(bytes: &[u8]) -> String {
    data_encoding::BASE64URL_NOPAD.encode(bytes)
}

#[test]
fn hostile_requests_get_clear_errors_and_leave_the_server_unharmed() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::serve(dir.path());
    let cookie = server.sign_in();
    let (key, secret) = server.api_key(&cookie);
    assert_eq!(server.write(&secret, &one_sample()).status, 204);
    let query = |expr: &str| format!("/api/v1/orgs/{ORG}/query/expr-instant?expr={}", percent(expr));
    let expect = |what: &str, answer: &crate::harness::Answer, status: u16, code: &str| {
        assert_eq!((answer.status, answer.code().as_str()), (status, code), "{what}: {}", answer.body);
        let type_ = answer.header("content-type").unwrap_or_default();
        assert!(type_.starts_with("application/problem+json"), "{what}: {type_}");
        assert!(answer.header("x-request-id").is_some(), "{what}");
    };

    let login = |password: &str| {
        server.post_json("/api/v1/auth/login", &[], &json!({"email": EMAIL, "password": password}))
    };
    expect("a wrong password", &login("wrong"), 401, "invalid_credentials");
    expect(
        "a forged cookie",
        &server.get(&query("1"), &[("Cookie", "ms_session=ses_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")]),
        401,
        "session_invalid",
    );
    expect("no credential", &server.get(&query("1"), &[]), 401, "unauthenticated");
    let now = Clock::System.now().as_s();
    let none = format!(
        "{}.{}.",
        base64url(json!({"alg": "none", "typ": "JWT", "kid": key}).to_string().as_bytes()),
        base64url(
            json!({"aud": "ms-embed", "org": ORG, "iat": now, "exp": now + 600}).to_string().as_bytes()
        )
    );
    expect(
        "alg none",
        &server.get(&query("1"), &[("Authorization", &format!("Bearer {none}"))]),
        401,
        "token_invalid",
    );
    expect(
        "a raw API key on a data path",
        &server.get(&query("1"), &[("Authorization", &format!("Bearer {secret}"))]),
        401,
        "api_key_not_allowed",
    );
    expect(
        "a foreign organisation",
        &server.get("/api/v1/orgs/other/query/expr-instant?expr=1", &[("Cookie", &cookie)]),
        404,
        "org_not_found",
    );
    expect(
        "a foreign host name",
        &server.get(&query("1"), &[("Cookie", &cookie), ("Host", "evil.example")]),
        421,
        "host_not_allowed",
    );
    let cross_site =
        [("Cookie", &*cookie), ("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site")];
    expect(
        "a cross-site post",
        &server.post_json("/api/v1/orgs", &cross_site, &json!({"slug": "x1"})),
        403,
        "csrf_rejected",
    );

    let machine = [
        ("Authorization", &*format!("Bearer {secret}")),
        ("Content-Type", "application/x-protobuf"),
        ("Content-Encoding", "snappy"),
    ];
    let write = |body: &[u8]| {
        request("POST", &format!("{}/api/v1/orgs/{ORG}/write", server.url), &machine, Some(body))
    };
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
    let big_login = json!({"email": EMAIL, "password": "x".repeat(17 << 10)});
    expect(
        "an oversized login",
        &server.post_json("/api/v1/auth/login", &[], &big_login),
        413,
        "body_too_large",
    );

    let deep = format!("{}1{}", "(".repeat(5_000), ")".repeat(5_000));
    let long = vec!["1"; 3_000].join("+");
    let regexes = vec!["a=~\"\\\\w{60}\""; 17].join(",");
    let hostile = [
        &*deep,
        "hostile_test offset inf",
        "hostile_test[1e30]",
        &*long,
        &*format!("x{{{regexes}}}"),
        "sum(",
        "x{a=\"b\" or c=~\".*\"}",
        "\u{0}",
    ];
    for expr in hostile {
        let answer = server.get(&query(expr), &[("Cookie", &cookie)]);
        assert!([400, 422].contains(&answer.status), "{expr:.40}: {} {}", answer.status, answer.body);
        assert_eq!(answer.code(), "bad_expr", "{expr:.40}");
        assert_eq!(answer.json()["errorType"], "bad_data", "{expr:.40}");
    }

    assert_eq!(login(PASSWORD).status, 200, "the server is unharmed");
    assert_eq!(
        server.ask(&cookie, "hostile_test", &Clock::System.now().as_s().to_string())["result"][0]["value"][1],
        "1"
    );
    assert!(server.terminate().success());
}
