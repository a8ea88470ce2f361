//! Single-use credentials work only once, even across crashes: each is used, the process is killed
//! right after the response, and the next process refuses it (docs/specification.md D1, D3, D5, D6;
//! threats 19, 22, 25).

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use promlet::clock::Clock;
use serde_json::{Value as Json, json};

use crate::harness::{Answer, EMAIL, ORG, PASSWORD, Server, Start, bootstrap, eventually};

const AUTH: &str = "/api/v1/auth";

/// A server that is killed after each use and starts again in the same folder.
struct CrashingServer<'a> {
    dir: &'a Path,
    env: Vec<(&'a str, &'a str)>,
    server: Option<Server>,
}

impl<'a> CrashingServer<'a> {
    fn start(dir: &'a Path, env: Vec<(&'a str, &'a str)>) -> CrashingServer<'a> {
        let server = Some(Server::start(&Start { args: &["serve"], dir, env: &env }));
        CrashingServer { dir, env, server }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("alive")
    }

    fn post(&self, path: &str, cookie: &str, body: &Json) -> Answer {
        self.server().post_json(&format!("{AUTH}{path}"), &[("Cookie", cookie)], body)
    }

    /// Uses a credential, kills the server, and uses the credential again after a restart.
    fn use_twice(
        &mut self,
        what: &str,
        good: u16,
        refused: (u16, &str),
        use_it: impl Fn(&CrashingServer<'_>) -> Answer,
    ) {
        let first = use_it(self);
        self.server.take().expect("alive").kill();
        assert_eq!(first.status, good, "{what}: {}", first.body);
        *self = CrashingServer::start(self.dir, std::mem::take(&mut self.env));
        let again = use_it(self);
        assert_eq!((again.status, again.code().as_str()), refused, "{what}, used again: {}", again.body);
        assert!(!again.headers.iter().any(|(_, value)| value.contains("ms_session=ses_")), "{what}");
    }

    /// Returns the token of the next mail of this kind on the console.
    fn mailed(&self, kind: &str) -> String {
        let line = self.server().line(|line| line.contains(&format!(" kind={kind} ")));
        let url = line.split(" url=").nth(1).and_then(|rest| rest.split(' ').next()).expect("a link");
        url.split("token=").nth(1).expect("a token").to_owned()
    }
}

fn serve(dir: &Path) -> CrashingServer<'_> {
    CrashingServer::start(dir, bootstrap().into_iter().chain([("PROMLET_SIGNUP", "open")]).collect())
}

#[test]
fn a_mailed_link_of_each_kind_stays_used_over_kill_dash_nine() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let mut crashing = serve(dir.path());
    let invalid = (401, "link_invalid");

    crashing.post("/magic-link/request", "", &json!({ "email": EMAIL }));
    let link = json!({ "token": crashing.mailed("magic_link"), "email": EMAIL });
    crashing
        .use_twice("a sign-in link", 200, invalid, |crashing| crashing.post("/magic-link/verify", "", &link));

    crashing.post("/password/reset/request", "", &json!({ "email": EMAIL }));
    let reset =
        json!({ "token": crashing.mailed("password_reset"), "email": EMAIL, "new_password": PASSWORD });
    crashing.use_twice("a reset link", 200, invalid, |crashing| {
        crashing.post("/password/reset/confirm", "", &reset)
    });

    crashing.post("/signup", "", &json!({ "email": "grace@example.com" }));
    let signup =
        json!({ "token": crashing.mailed("signup"), "email": "grace@example.com", "password": PASSWORD });
    crashing
        .use_twice("a sign-up link", 201, invalid, |crashing| crashing.post("/signup/complete", "", &signup));

    let cookie = crashing.server().sign_in();
    crashing.post("/email/change", &cookie, &json!({ "new_email": "ada@new.example" }));
    let confirm = json!({ "token": crashing.mailed("email_confirm") });
    crashing
        .use_twice("an address link", 200, invalid, |crashing| crashing.post("/email/confirm", "", &confirm));

    let invites = format!("/api/v1/orgs/{ORG}/invites");
    let wanted = json!({ "email": "eve@example.com", "role": "viewer" });
    let invite = crashing.server().post_json(&invites, &[("Cookie", &cookie)], &wanted);
    assert_eq!(invite.status, 201, "{}", invite.body);
    let url = invite.json()["url"].as_str().expect("the console mailer").to_owned();
    let accept = json!({ "token": url.split("token=").nth(1).expect("a token"), "password": PASSWORD });
    crashing
        .use_twice("an invitation", 201, invalid, |crashing| crashing.post("/invites/accept", "", &accept));
}

#[test]
fn a_set_up_token_stays_used_over_kill_dash_nine() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let mut crashing = CrashingServer::start(dir.path(), Vec::new());
    let log = crashing.server().log_line("/setup#token=");
    let token = log.split("/setup#token=").nth(1).and_then(|rest| rest.split_whitespace().next());
    let account = json!({ "setup_token": token.expect("a set-up link"), "email": EMAIL, "password": PASSWORD,
        "org": { "slug": ORG } });
    // A remote address, from which only the token opens.
    let sign_up = |crashing: &CrashingServer<'_>| {
        let path = format!("{AUTH}/signup");
        crashing.server().post_json(&path, &[("X-Forwarded-For", "203.0.113.9")], &account)
    };
    crashing.use_twice("a set-up token", 201, (403, "signup_closed"), sign_up);
}

/// Returns the code that an authenticator app shows in the 30 seconds of `step`.
pub(crate) fn code(secret: &str, step: u64) -> String {
    let secret = data_encoding::BASE32_NOPAD.decode(secret.as_bytes()).expect("base32");
    let totp = totp_rs::Builder::new().with_secret(secret).build().expect("a generator");
    totp.generate(step * 30).to_string()
}

pub(crate) fn step() -> u64 {
    u64::try_from(Clock::System.now().as_s()).expect("after 1970") / 30
}

fn pending(crashing: &CrashingServer<'_>) -> String {
    let login = crashing.post("/login", "", &json!({ "email": EMAIL, "password": PASSWORD }));
    login.json()["twofa_pending_login"].as_str().unwrap_or_else(|| panic!("{}", login.body)).to_owned()
}

#[test]
fn a_code_a_recovery_code_and_a_pending_login_stay_used_over_kill_dash_nine() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let mut crashing = serve(dir.path());
    let cookie = crashing.server().sign_in();
    let secret = crashing.post("/2fa/enroll", &cookie, &json!({})).json()["secret"].clone();
    let secret = secret.as_str().expect("a secret");
    let confirmed = crashing.post("/2fa/confirm", &cookie, &json!({ "code": code(secret, step()) }));
    assert_eq!(confirmed.status, 200, "{}", confirmed.body);
    let codes = confirmed.json()["recovery_codes"].clone();

    let recover = |crashing: &CrashingServer<'_>| {
        let body = json!({ "twofa_pending_login": pending(crashing), "recovery_code": codes[0] });
        crashing.post("/2fa/verify", "", &body)
    };
    crashing.use_twice("a recovery code", 200, (401, "invalid_code"), recover);

    let tfp = pending(&crashing);
    let number = std::cell::Cell::new(0);
    let verify = |crashing: &CrashingServer<'_>| {
        number.set(number.get() + 1);
        crashing.post(
            "/2fa/verify",
            "",
            &json!({ "twofa_pending_login": tfp, "recovery_code": codes[number.get()] }),
        )
    };
    crashing.use_twice("a pending login", 200, (401, "pending_login_invalid"), verify);

    // A code is valid for a minute and a half. If a kill and a start take longer, try the next
    // code.
    let mut last = step();
    for round in 0.. {
        let failure = || format!("the time step {last} has not begun");
        eventually(Duration::from_secs(120), failure, || (step() >= last).then_some(()));
        // The code of the next half minute is already used.
        let used = step().max(last) + 1;
        let body = |crashing: &CrashingServer<'_>| json!({ "twofa_pending_login": pending(crashing), "code": code(secret, used) });
        let first = crashing.post("/2fa/verify", "", &body(&crashing));
        crashing.server.take().expect("alive").kill();
        assert_eq!(first.status, 200, "{}", first.body);
        crashing = CrashingServer::start(dir.path(), std::mem::take(&mut crashing.env));
        let again = crashing.post("/2fa/verify", "", &body(&crashing));
        assert_eq!(again.status, 401, "{}", again.body);
        match again.code().as_str() {
            "code_already_used" => break,
            "invalid_code" if step() > used + 1 && round < 4 => last = used,
            other => panic!("{other}: {}", again.body),
        }
    }
}

/// A fake GitHub that returns Ada's account for every code, however often it comes.
fn github() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            answer(stream);
        }
    });
    url
}

fn answer(stream: TcpStream) {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).expect("a request");
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a header");
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) =
            line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        {
            length = value.trim().parse().unwrap_or_else(|_| panic!("{name}: {value}"));
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the whole body");
    let body_text = match first.split(' ').nth(1).unwrap_or_default() {
        "/login/oauth/access_token" => json!({ "access_token": "x", "token_type": "bearer" }),
        "/user" => json!({ "id": 7, "login": "ada", "name": "Ada" }),
        _ => json!([{ "email": EMAIL, "primary": true, "verified": true }]),
    };
    let body_text = body_text.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body_text.len()
    );
    reader.get_mut().write_all(format!("{head}{body_text}").as_bytes()).expect("heard");
}

#[test]
fn the_state_of_a_provider_sign_in_stays_used_over_kill_dash_nine() {
    let dir = crate::harness::scratch::temporary_folder().expect("a folder");
    let github = github();
    let own = [
        ("PROMLET_OAUTH_GITHUB_CLIENT_ID", "ms"),
        ("PROMLET_OAUTH_GITHUB_CLIENT_SECRET", "secret"),
        ("PROMLET_OAUTH_GITHUB_BASE_URL", github.as_str()),
        ("PROMLET_OAUTH_GITHUB_API_URL", github.as_str()),
    ];
    let mut crashing = CrashingServer::start(dir.path(), bootstrap().into_iter().chain(own).collect());
    let begun = crashing.post("/oauth/github/start", "", &json!({}));
    assert_eq!(begun.status, 200, "{}", begun.body);
    let ticket =
        begun.headers.iter().map(|(_, value)| value.as_str()).find(|value| value.starts_with("ms_oauth="));
    let ticket = ticket.and_then(|value| value.split(';').next()).expect("a ticket").to_owned();
    let back = json!({ "code": "x", "state": begun.json()["state"] });
    let callback = |crashing: &CrashingServer<'_>| crashing.post("/oauth/github/callback", &ticket, &back);
    crashing.use_twice("a state", 200, (400, "invalid_state"), callback);
}
