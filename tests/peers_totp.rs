//! The second factor with real tools: the code from `oathtool`, and the QR code read by `zbarimg`.
//! Both are Debian packages, unpacked below the target folder.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;
#[path = "peers/packages.rs"]
#[expect(dead_code, reason = "shared: each target needs other packages")]
mod packages;

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::{EMAIL, PASSWORD, Server, percent};
use packages::run;
use serde_json::json;

/// Comes with every Debian, and must not come twice.
const THERE: &[&str] = &["libc6", "libgcc-s1", "libstdc++6", "debconf"];

/// The packages with all that they need, unpacked; the folder that holds them.
fn unpacked() -> PathBuf {
    let mut depends = Command::new("apt-cache");
    depends.args([
        "depends",
        "--recurse",
        "--no-recommends",
        "--no-suggests",
        "--no-conflicts",
        "--no-breaks",
    ]);
    depends.args(["--no-replaces", "--no-enhances", "oathtool", "zbar-tools"]);
    let listed = run(&mut depends, "Debian's apt is needed");
    let is_package = |line: &&str| !line.starts_with([' ', '<', '|']) && !THERE.contains(line);
    let mut needed: Vec<&str> = listed.lines().filter(is_package).collect();
    needed.sort_unstable();
    needed.dedup();
    assert!(needed.contains(&"libzbar0"), "apt knows no zbar-tools: run apt-get update; it said {listed:?}");
    packages::debian("totp", &needed)
}

/// A program of the folder, with its own libraries.
fn tool(root: &Path, name: &str) -> Command {
    let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
    let libraries: Vec<String> = ["usr/lib", "lib"]
        .iter()
        .flat_map(|lib| [root.join(lib).join(&machine), root.join(lib)])
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    let mut command = Command::new(root.join("usr/bin").join(name));
    command.env("LD_LIBRARY_PATH", libraries.join(":"));
    // The picture library looks for the reader of PNG where it would have been installed.
    let readers = run(
        Command::new("find").arg(root).args(["-name", "png.so", "-printf", "%h"]),
        "the library is there",
    );
    command.env("MAGICK_CODER_MODULE_PATH", readers);
    command
}

#[test]
fn a_scanned_secret_makes_codes_that_sign_in() {
    let root = unpacked();
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::serve(dir.path());
    let cookie = server.sign_in();
    let enrolled = server.post_json("/api/v1/auth/2fa/enroll", &[("Cookie", &cookie)], &json!({}));
    assert_eq!(enrolled.status, 200, "{}", enrolled.body);
    let enrolled = enrolled.json();
    let text = |name: &str| enrolled[name].as_str().expect("a text").to_owned();

    let picture = text("qr_png");
    let base64 = picture.strip_prefix("data:image/png;base64,").expect("a picture");
    let path = dir.path().join("qr.png");
    std::fs::write(&path, data_encoding::BASE64.decode(base64.as_bytes()).expect("base64")).expect("written");
    let scanned = run(tool(&root, "zbarimg").args(["-q", "--raw"]).arg(&path), "the picture can be read");
    assert_eq!(scanned.trim(), text("otpauth_url"));
    assert!(scanned.contains(&format!("secret={}", text("secret"))) && scanned.contains(&percent(EMAIL)));

    let code = |at: &str| {
        let mut oathtool = tool(&root, "oathtool");
        oathtool.args(["--totp", "-b", "-N", at]).arg(text("secret"));
        run(&mut oathtool, "the secret is base 32").trim().to_owned()
    };
    let body = json!({ "code": code("now") });
    let confirmed = server.post_json("/api/v1/auth/2fa/confirm", &[("Cookie", &cookie)], &body);
    assert_eq!(confirmed.status, 200, "{}", confirmed.body);
    let login = json!({ "email": EMAIL, "password": PASSWORD });
    let pending = server.post_json("/api/v1/auth/login", &[], &login).json();
    let verify = |code: String| {
        let body = json!({ "twofa_pending_login": pending["twofa_pending_login"], "code": code });
        server.post_json("/api/v1/auth/2fa/verify", &[], &body)
    };
    assert_eq!(verify(body["code"].as_str().expect("it").to_owned()).code(), "code_already_used");
    // One step ahead is within the skew, and not used yet.
    let done = verify(code("now + 30 seconds"));
    assert_eq!(done.status, 200, "{}", done.body);
    assert!(done.session_cookie().starts_with("ms_session=ses_"));
}
