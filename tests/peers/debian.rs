//! Debian packages unpacked below `target/`, for the tests that need a real peer.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where `packages` of this machine's own release, so that its libraries fit, are unpacked: what they have below `/`.
/// Where they cannot be had the test fails and says so.
pub(crate) fn unpacked(name: &str, packages: &[&str]) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let script = ". /etc/os-release && script=$0 dir=$1 && shift && exec sh \"$script\" \"$VERSION_CODENAME\" \"$dir\" \"$@\"";
    let status = Command::new("sh")
        .args(["-c", script])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/debian.sh"))
        .arg(&dir)
        .args(packages)
        .status()
        .expect("a shell");
    assert!(status.success(), "{name} could not be fetched; see the lines above");
    dir.join("root")
}
