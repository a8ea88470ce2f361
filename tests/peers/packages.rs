//! Packages of Debian, PyPI and npm for the tests against real peers, each in its own folder below
//! the target folder's `tmp`.
//!
//! The first test that needs a folder makes it; the others, also in other processes, wait for it.
//! An incomplete folder is made again. If packages are unavailable, the test fails and reports it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs a command to its end. Returns its standard output.
pub(crate) fn run(command: &mut Command, why: &str) -> String {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{shown} does not start: {error}; {why}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown} failed: {why}\n{said}{errors}");
    said
}

/// Returns the folder of this name and its lock. No other process uses the folder while the lock is
/// held.
fn alone(name: &str) -> (PathBuf, File) {
    let all = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::create_dir_all(all).expect("the target folder is ours");
    let lock = File::create(all.join(format!("{name}.lock"))).expect("the target folder is ours");
    lock.lock().expect("a lock");
    (all.join(name), lock)
}

/// Returns the folder of this name, which contains `wanted`. If it does not yet, `fill` writes it
/// into an empty folder.
fn filled(name: &str, wanted: &str, fill: impl FnOnce(&Path)) -> PathBuf {
    let (folder, _lock) = alone(name);
    let ready = folder.join("ready");
    if !std::fs::read_to_string(&ready).is_ok_and(|have| have == wanted) {
        if folder.exists() {
            std::fs::remove_dir_all(&folder).expect("the target folder is ours");
        }
        std::fs::create_dir_all(&folder).expect("the target folder is ours");
        fill(&folder);
        std::fs::write(&ready, wanted).expect("the target folder is ours");
    }
    folder
}

/// Returns the path of the program `name` in `PATH`, if there is one.
fn program(name: &str) -> Option<PathBuf> {
    let output = Command::new("sh").args(["-c", "command -v \"$0\"", name]).output().expect("a shell");
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    (output.status.success() && !path.is_empty()).then(|| PathBuf::from(path))
}

/// Returns the program `name`; installs the Debian package if it is missing.
pub(crate) fn installed(name: &str, package: &str) -> PathBuf {
    let (_, _lock) = alone("apt");
    program(name).unwrap_or_else(|| {
        let why = format!(
            "{name} is needed and comes with Debian's package {package}; as root: apt-get install {package}"
        );
        let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.starts_with(b"0"));
        for words in [&["update", "-qq"][..], &["install", "-y", "-qq", "--no-install-recommends", package]] {
            // Without root, only sudo without a password works; anything else would prompt.
            let mut command = Command::new(if root { "apt-get" } else { "sudo" });
            if !root {
                command.args(["-n", "apt-get"]);
            }
            run(command.args(words).env("DEBIAN_FRONTEND", "noninteractive"), &why);
        }
        program(name).unwrap_or_else(|| panic!("apt installed {package}, but there is no {name}"))
    })
}

/// Installs a PyPI package and its dependencies into an environment. Returns the folder of its
/// programs, `python` among them.
pub(crate) fn pypi(name: &str, package: &str) -> PathBuf {
    filled(name, package, |folder| {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"]);
        run(pip.arg(folder).arg(package), "packages of PyPI need python3 with pip (Debian: python3-pip)");
    })
}

/// Installs a PyPI package and its dependencies into an environment. Returns the folder of its
/// programs, `python` among them.
pub(crate) fn environment(name: &str, package: &str) -> PathBuf {
    let folder = filled(name, package, |folder| {
        let why = "packages of PyPI need Python 3 with venv (Debian: python3-venv)";
        run(Command::new("python3").args(["-m", "venv"]).arg(folder), why);
        let mut pip = Command::new(folder.join("bin/pip"));
        run(pip.args(["install", "--quiet", "--disable-pip-version-check", package]), why);
    });
    folder.join("bin")
}

/// Installs a package of npm and its dependencies. Returns the folder with `node_modules`.
pub(crate) fn npm(name: &str, package: &str) -> PathBuf {
    npm_all(name, &[package])
}

/// Installs packages of npm and their dependencies. Returns the folder with `node_modules`.
pub(crate) fn npm_all(name: &str, packages: &[&str]) -> PathBuf {
    filled(name, &packages.join(" "), |folder| {
        installed("node", "nodejs");
        let mut npm = Command::new(installed("npm", "npm"));
        npm.args(["install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
        run(npm.arg(folder).args(packages), "its packages come from npm's registry");
    })
}

/// Unpacks packages of the release of this machine, so that its libraries fit. Returns the folder
/// that holds their content below `/`.
pub(crate) fn debian(name: &str, packages: &[&str]) -> PathBuf {
    let release = std::fs::read_to_string("/etc/os-release").expect("peers' packages are Debian's");
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    unpacked(name, codename.expect("a release has a name").trim_matches('"'), packages)
}

/// Unpacks packages of Debian sid, because those of the stable release are too old.
pub(crate) fn latest_debian(name: &str, packages: &[&str]) -> PathBuf {
    unpacked(name, "sid", packages)
}

/// Packages of Debian 12, for those whose names contain a version.
pub(crate) fn debian_12(name: &str, packages: &[&str]) -> PathBuf {
    unpacked(name, "bookworm", packages)
}

/// Packages of Debian 13, for those that the release before it does not have.
pub(crate) fn debian_13(name: &str, packages: &[&str]) -> PathBuf {
    unpacked(name, "trixie", packages)
}

/// Returns the compiler of Go with its cache; `sources` are folders with packages below `src/`.
pub(crate) fn go(sources: &[&Path]) -> Command {
    let root = debian_12("go", &["golang-1.19-go", "golang-1.19-src"]).join("usr/lib/go-1.19");
    let mut go = Command::new(root.join("bin/go"));
    go.env("GOPATH", std::env::join_paths(sources).expect("no path has a colon"))
        .env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache"))
        .envs([("GO111MODULE", "off"), ("CGO_ENABLED", "0"), ("GOFLAGS", "")])
        .env("GOROOT", root);
    go
}

/// Returns PHP without a configuration file.
pub(crate) fn php() -> Command {
    const PACKAGES: [&str; 11] = [
        "libargon2-1",
        "libedit2",
        "libicu72",
        "liblzma5",
        "libmagic1",
        "libpcre2-8-0",
        "libsodium23",
        "libssl3",
        "libxml2",
        "php8.2-cli",
        "zlib1g",
    ];
    let root = debian_12("php", &PACKAGES);
    let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
    let libraries = ["usr/lib", "lib"].map(|lib| root.join(lib).join(&machine));
    let mut php = Command::new(root.join("usr/bin/php8.2"));
    php.arg("-n").env("LD_LIBRARY_PATH", std::env::join_paths(libraries).expect("no path has a colon"));
    php
}

fn unpacked(name: &str, suite: &str, packages: &[&str]) -> PathBuf {
    let (folder, _lock) = alone(name);
    let status = Command::new("sh")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/debian.sh"))
        .arg(suite)
        .arg(&folder)
        .args(packages)
        .stdin(Stdio::null())
        .status()
        .expect("a shell");
    assert!(status.success(), "{name} could not be fetched; see the lines above");
    folder.join("root")
}

/// Returns the folder with the programs of Prometheus 3.5 and node_exporter. Debian's stable
/// Prometheus 2.x gives other answers (left-closed windows, among others).
pub(crate) fn prometheus() -> PathBuf {
    let packages = ["prometheus", "promtool", "prometheus-node-exporter"];
    latest_debian("prometheus", &packages).join("usr/bin")
}
