//! The second factor with real tools: the code of `oathtool`, and the picture as `zbarimg` reads it. Both are Debian
//! packages, unpacked below the target folder.

#![expect(clippy::panic, reason = "what a test needs and does not get ends it, with the reason")]

#[path = "binary/harness.rs"]
#[expect(dead_code, reason = "shared with tests/binary.rs, which uses all of it")]
mod harness;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::{EMAIL, PASSWORD, Server, percent};
use serde_json::json;

/// Comes with every Debian, and must not come twice.
const THERE: &[&str] = &["libc6", "libgcc-s1", "libstdc++6", "debconf"];

fn said(command: &mut Command) -> String {
    let shown = format!("{command:?}");
    let output =
        command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{shown} does not start: {e}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

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
    let listed = said(&mut depends);
    let is_package = |line: &&str| !line.starts_with([' ', '<', '|']) && !THERE.contains(line);
    let mut packages: Vec<&str> = listed.lines().filter(is_package).collect();
    packages.sort_unstable();
    packages.dedup();
    assert!(
        packages.contains(&"libzbar0"),
        "apt knows no zbar-tools: run apt-get update; it said {listed:?}"
    );
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("totp");
    let suite = said(Command::new("sh").args(["-c", ". /etc/os-release && echo $VERSION_CODENAME"]));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/debian.sh");
    said(Command::new("sh").arg(script).arg(suite.trim()).arg(&dir).args(packages));
    dir.join("root")
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
    let readers = said(Command::new("find").arg(root).args(["-name", "png.so", "-printf", "%h"]));
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
    let scanned = said(tool(&root, "zbarimg").args(["-q", "--raw"]).arg(&path));
    assert_eq!(scanned.trim(), text("otpauth_url"));
    assert!(scanned.contains(&format!("secret={}", text("secret"))) && scanned.contains(&percent(EMAIL)));

    let code = |at: &str| {
        said(tool(&root, "oathtool").args(["--totp", "-b", "-N", at]).arg(text("secret"))).trim().to_owned()
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
