//! Errors of the sign-in routes that `oauth.rs` does not test.

use super::*;

const START: &str = "/api/v1/auth/oauth/oidc/start";

#[tokio::test]
async fn a_start_by_get_is_refused_like_one_by_post() {
    let (server, _idp) = with_oidc(Admission::default()).await;
    server.get(&format!("{START}?mode=x"), &Who::Nobody).await.is(400, "invalid_parameter");
    server.get(&format!("{START}?mode=login&mode=link"), &Who::Nobody).await.is(400, "duplicate_parameter");
    server.get(&format!("{START}?mode=link"), &Who::Nobody).await.is(401, "unauthenticated");
    let ada = server.log_in().await;
    assert_eq!(server.get(&format!("{START}?mode=link"), &ada).await.status, 302);
    server.pass(Duration::from_secs(15 * 60 + 1));
    server.get(&format!("{START}?mode=link"), &ada).await.is(403, "reauth_required");
    for (status, code) in [(500, "idp_unavailable"), (302, "idp_error")] {
        let (server, idp) = with_oidc(Admission::default()).await;
        idp.script().instead = vec![("/.well-known/openid-configuration", status, Vec::new())];
        server.get(START, &Who::Nobody).await.is(502, code);
        let page = ask("GET", START, &Who::Nobody).header(header::ACCEPT, "text/html");
        let page = server.send(page.body(Body::empty()).expect("a request")).await;
        assert_eq!((page.status.as_u16(), page.header("location")), (303, &*format!("/login?error={code}")));
    }
}

/// Another site that signed this browser in at the provider as another user gets no login to this
/// account.
#[tokio::test]
async fn no_other_site_starts_to_link() {
    let (server, _idp) = with_oidc(Admission::default()).await;
    let ada = server.log_in().await;
    for (site, mode, status) in [
        ("cross-site", "link", 403),
        ("same-site", "link", 403),
        ("same-origin", "link", 302),
        ("none", "link", 302),
        ("cross-site", "login", 302),
    ] {
        let start = ask("GET", &format!("{START}?mode={mode}"), &ada).header("sec-fetch-site", site);
        let start = server.send(start.body(Body::empty()).expect("a request")).await;
        assert_eq!(start.status.as_u16(), status, "{site} {mode}: {}", start.body);
        assert_eq!(state_cookie(&start).is_some(), status == 302, "{site} {mode}");
    }
}

#[tokio::test]
async fn an_account_has_at_most_twenty_identities() {
    let (server, idp) = with_oidc(Admission::default()).await;
    let ada = server.log_in().await;
    for number in 0..20 {
        claim(&idp, json!({ "sub": format!("ada {number}") }));
        assert_eq!(link(&server, &idp, &ada).await.value()["linked"], true, "{number}");
        server.pass(Duration::from_secs(1));
    }
    claim(&idp, json!({ "sub": "one more" }));
    link(&server, &idp, &ada).await.is(409, "conflict");
}

/// Disabling the account or ending the session cancels a link that was started.
#[tokio::test]
async fn a_started_link_ends_with_its_session() {
    let (server, idp) = with_oidc(Admission::default()).await;
    let ada = server.log_in().await;
    let started = start_at(&server, "oidc", &ada, json!({ "mode": "link" })).await;
    let sent = json!({ "code": idp.agree(&started.url), "state": started.state });
    assert_eq!(server.post("/api/v1/auth/logout", &ada, json!({})).await.status, 204);
    callback(&server, "oidc", &started.cookie, &ada, &sent).await.is(401, "unauthenticated");
    assert_eq!(idp.asked("/token"), 0, "no request was sent");
}
