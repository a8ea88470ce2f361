//! Mail through a real server (aiosmtpd, over STARTTLS and with a login): links in mails work,
//! notices follow, and a server with an untrusted certificate receives nothing.
//!
//! aiosmtpd comes from PyPI into a folder below `target/`, certificates from openssl; if either is
//! unavailable, the test fails and reports it.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/mail_server.rs"]
mod mail_server;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::path::Path;

use harness::{EMAIL, PASSWORD, Server, Start, bootstrap};
use mail_server::{MailServer, SECRET, certificates};
use serde_json::{Value as Json, json};

const FROM: &str = "promlet <promlet@metrics.example>";

/// Returns the part of the link in a mail that follows `begins`.
fn token<'a>(mail: &'a Json, begins: &str) -> &'a str {
    let body = mail["body"].as_str().expect("text");
    let link = body.lines().find_map(|line| line.strip_prefix(begins));
    link.unwrap_or_else(|| panic!("no link {begins} in {body}"))
}

fn serve(dir: &Path, mail: &MailServer, more: &[(&str, &str)]) -> Server {
    // A secret may come in a file, whose line end is not part of it.
    let url = dir.join("smtp-url");
    std::fs::write(&url, mail.url() + "\n").expect("written");
    let url = url.to_str().expect("UTF-8");
    let own = [("PROMLET_SMTP_URL_FILE", url), ("PROMLET_MAIL_FROM", FROM), ("PROMLET_SIGNUP", "open")];
    let env: Vec<_> = bootstrap().into_iter().chain(own).chain(more.iter().copied()).collect();
    let store = dir.join("store");
    Server::start(&Start { args: &["serve"], dir: &store, env: &env })
}

#[test]
fn links_arrive_by_smtp_are_used_and_notices_follow() {
    let dir = tempfile::tempdir().expect("a folder");
    certificates(dir.path());
    let mails = MailServer::start(dir.path());
    let ca = dir.path().join("ca.pem");
    let more = [("PROMLET_SMTP_CA_FILE", ca.to_str().expect("UTF-8")), ("PROMLET_LOG", "trace")];
    let server = serve(dir.path(), &mails, &more);
    let post = |path: &str, body: &Json| server.post_json(&format!("/api/v1/auth{path}"), &[], body);
    assert_eq!(server.get("/api/v1/auth/config", &[]).json()["mailer"], "smtp");

    // A sign-in link, which scanners may open any number of times.
    assert_eq!(post("/magic-link/request", &json!({ "email": EMAIL })).status, 202);
    let mail = mails.next(EMAIL);
    assert_eq!(mail["subject"], "Your sign-in link");
    let begins = format!("{}/api/v1/auth/magic-link/verify?token=", server.url);
    let link = token(&mail, &begins);
    for _ in 0..3 {
        let page = server.get(&format!("/api/v1/auth/magic-link/verify?token={link}"), &[]);
        assert!(page.status == 200 && page.body.contains("<form"), "{}", page.body);
    }
    let signed = post("/magic-link/verify", &json!({ "token": link, "email": EMAIL }));
    assert_eq!(signed.status, 200, "{}", signed.body);
    signed.session_cookie();

    // A new password.
    assert_eq!(post("/password/reset/request", &json!({ "email": EMAIL })).status, 202);
    let mail = mails.next(EMAIL);
    let reset = token(&mail, &format!("{}/login/reset#token=", server.url));
    let new = json!({ "token": reset, "email": EMAIL, "new_password": "another long password" });
    assert_eq!(post("/password/reset/confirm", &new).status, 200);
    assert_eq!(mails.next(EMAIL)["subject"], "Your password was changed");
    assert_eq!(post("/login", &json!({ "email": EMAIL, "password": "another long password" })).status, 200);

    // A new account, and a notice to an address that already has one.
    let grace = "grace.hopper+metrics@example.com";
    assert_eq!(post("/signup", &json!({ "email": grace })).status, 202);
    let mail = mails.next(grace);
    let signup = token(&mail, &format!("{}/login/signup#token=", server.url));
    let made = post("/signup/complete", &json!({ "token": signup, "email": grace, "password": PASSWORD }));
    assert_eq!(made.status, 201, "{}", made.body);
    assert_eq!(post("/signup", &json!({ "email": grace })).status, 202);
    assert_eq!(mails.next(grace)["subject"], "You already have an account");

    // A new address: the old one gets a notice.
    let cookie = made.session_cookie();
    let change = json!({ "new_email": "hopper@example.com" });
    let asked = server.post_json("/api/v1/auth/email/change", &[("Cookie", &cookie)], &change);
    assert_eq!(asked.status, 202, "{}", asked.body);
    let mail = mails.next("hopper@example.com");
    let address = token(&mail, &format!("{}/login/email#token=", server.url));
    assert_eq!(post("/email/confirm", &json!({ "token": address })).status, 200);
    assert_eq!(mails.next(grace)["subject"], "The address of your account was changed");

    let log = server.log();
    for secret in [link, reset, signup, address, SECRET, &harness::percent(SECRET), PASSWORD, "another long"]
    {
        assert!(!log.contains(secret), "{secret} in the log");
    }
}

#[test]
fn a_mail_server_that_nobody_vouches_for_gets_nothing_and_nobody_waits_for_it() {
    let dir = tempfile::tempdir().expect("a folder");
    certificates(dir.path());
    let mails = MailServer::start(dir.path());
    let server = serve(dir.path(), &mails, &[]);
    let asked = server.post_json("/api/v1/auth/magic-link/request", &[], &json!({ "email": EMAIL }));
    assert_eq!(asked.status, 202);
    server.log_line("a mail was not sent");
    assert!(mails.received.try_recv().is_err());
    let log = server.log();
    assert!(
        !log.contains("mgl_") && !log.contains(SECRET) && !log.contains(&harness::percent(SECRET)),
        "{log}"
    );
}
