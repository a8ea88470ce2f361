//! docs/specification.md F10: no secret is logged, at any level.

use serde_json::{Value as Json, json};

use crate::harness::{EMAIL, ORG, PASSWORD, Server, Start, bootstrap, request};

/// Performs typical actions of people and programs, including mistakes, and returns all secrets
/// that occurred.
fn session(server: &Server) -> Vec<String> {
    let mut secrets = vec![PASSWORD.to_owned(), "the wrong password".to_owned()];
    let login = |password: &str| {
        server.post_json("/api/v1/auth/login", &[], &json!({ "email": EMAIL, "password": password }))
    };
    assert_eq!(login("the wrong password").status, 401);
    let cookie = server.sign_in();
    secrets.push(cookie.trim_start_matches("ms_session=").to_owned());
    let json_of = |path: &str, body: &Json| server.post_json(path, &[("Cookie", &cookie)], body).json();
    let (key, secret) = server.api_key(&cookie);
    let token = json_of(&format!("/api/v1/orgs/{ORG}/embed/tokens"), &json!({ "api_key_id": key }))["token"]
        .as_str()
        .expect("a token")
        .to_owned();
    json_of(&format!("/api/v1/orgs/{ORG}/embed/introspect"), &json!({ "token": token }));
    let enrolled = server.post_json("/api/v1/auth/2fa/enroll", &[("Cookie", &cookie)], &json!({})).json();
    secrets.push(enrolled["secret"].as_str().expect("a secret").to_owned());
    // The address of a public link has its secret in the query.
    let on = json!({ "settings": { "public_links": true } }).to_string();
    let org = format!("{}/api/v1/orgs/{ORG}", server.url);
    let headers = [("Cookie", &*cookie), ("Content-Type", "application/json")];
    assert_eq!(request("PATCH", &org, &headers, Some(on.as_bytes())).status, 200);
    json_of(
        &format!("/api/v1/orgs/{ORG}/dashboards"),
        &json!({ "dashboard": { "uid": "node", "title": "T" } }),
    );
    let shared = json_of(&format!("/api/v1/orgs/{ORG}/dashboards/node/links"), &json!({}));
    let shared =
        shared["url"].as_str().and_then(|url| url.split("link=").nth(1)).expect("a secret").to_owned();
    assert_eq!(server.get(&format!("/share?link={shared}"), &[]).status, 200);
    server.get(&format!("/frame?token={token}&link={shared}"), &[("Referer", &shared)]);
    let bearer = |secret: &str| format!("Bearer {secret}");
    let basic = format!("Basic {}", data_encoding::BASE64.encode(format!("grafana:{secret}").as_bytes()));
    for authorization in [
        bearer(&secret),
        bearer(&token),
        bearer(&shared),
        bearer("mpl_wrong"),
        basic.clone(),
        bearer("msk_wrong"),
        bearer("eyJhbGciOiJub25lIn0.e30."),
    ] {
        for path in ["prometheus/api/v1/query?query=up", "query/range?metric=up", "metrics"] {
            server.get(&format!("/api/v1/orgs/{ORG}/{path}"), &[("Authorization", &authorization)]);
        }
    }
    let picture = |token: &str| {
        server.get(&format!("/api/v1/orgs/{ORG}/render.png?metric=up&token={token}"), &[]).status
    };
    assert_eq!((picture(&token), picture("eyJhbGciOiJub25lIn0.e30.")), (200, 401));
    server.write_raw(&secret, b"no snappy");
    // Secrets in places where they do not belong.
    for path in [
        format!("/api/v1/auth/me?token={secret}"),
        format!("/{secret}"),
        format!("/api/v1/orgs/{ORG}/query/range?access_token={token}"),
    ] {
        server.get(
            &path,
            &[("User-Agent", &secret), ("Referer", &token), ("X-Request-Id", "a b"), ("Origin", &secret)],
        );
    }
    server.post_json("/api/v1/auth/magic-link/request", &[], &json!({ "email": EMAIL }));
    let mail = server.line(|line| line.contains("verify?token="));
    let link =
        mail.split_whitespace().find_map(|word| word.split("token=").nth(1)).expect("a link").to_owned();
    let used =
        server.post_json("/api/v1/auth/magic-link/verify", &[], &json!({ "token": link, "email": EMAIL }));
    assert_eq!(used.status, 200, "{}", used.body);
    secrets.push(used.session_cookie().trim_start_matches("ms_session=").to_owned());
    server.get(&format!("/api/v1/auth/magic-link/verify?token={link}"), &[]);
    // Malformed requests are logged as such.
    request(
        "POST",
        &format!("{}/api/v1/auth/login", server.url),
        &[("Content-Type", "application/json")],
        Some(format!("{{\"password\":\"{PASSWORD}\"").as_bytes()),
    );
    server.post_json(
        "/api/v1/auth/2fa/verify",
        &[],
        &json!({ "twofa_pending_login": "tfp_AAAA", "code": "123456" }),
    );
    server.post_json("/api/v1/auth/logout", &[("Cookie", &cookie)], &json!({}));
    secrets.extend([secret, token, link, basic, shared]);
    secrets
}

#[test]
fn f10_a_whole_session_at_trace_leaves_no_secret_in_the_log() {
    for format in ["text", "json"] {
        let dir = crate::harness::scratch::temporary_folder().expect("a folder");
        let mut env = bootstrap().to_vec();
        env.extend([("PROMLET_LOG", "trace"), ("PROMLET_LOG_FORMAT", format)]);
        let server = Server::start(&Start { args: &["serve"], dir: dir.path(), env: &env });
        let secrets = session(&server);
        server.log_line("/api/v1/auth/logout");
        let log = server.log();
        assert!(
            log.contains("answered 401") && log.lines().count() > 30,
            "it is a log of everything:\n{log}"
        );
        for secret in &secrets {
            assert!(!log.contains(secret.as_str()), "{format}: {secret} in\n{}", line_with(&log, secret));
        }
        for start in ["ses_", "msk_", "mpl_", "mgl_", "rst_", "tfp_", "eyJ"] {
            // A prefix alone names a kind of secret; with more behind it, it is one.
            let shown = log.match_indices(start).find(|(at, _)| {
                let rest = log.get(at + start.len()..).unwrap_or_default();
                rest.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).count() >= 8
            });
            assert!(shown.is_none(), "{format}: {start} in {}", line_with(&log, start));
        }
    }
}

fn line_with<'a>(log: &'a str, text: &str) -> &'a str {
    log.lines().find(|line| line.contains(text)).unwrap_or_default()
}
