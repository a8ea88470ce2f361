//! Hands the time of the build to the program, in `BUILT_S`: whole days in seconds since the Unix epoch, so that
//! building twice a day yields the same program. `SOURCE_DATE_EPOCH` replaces the present, for reproducible builds.
//!
//! Minifies the files of the web UI into `OUT_DIR/ui`, from which `src/ui/mod.rs` includes them, and bundles the element
//! for pages of other origins.

#[path = "src/ui/bundle.rs"]
mod bundle;
#[path = "src/ui/imports.rs"]
mod imports;
#[path = "src/ui/minify.rs"]
mod minify;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

const DAY_S: u64 = 86_400;

#[expect(
    clippy::disallowed_methods,
    reason = "a build script is not the program, whose clock is an argument"
)]
fn main() {
    // Whatever else changes leaves the library as it is.
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=Cargo.lock");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let seconds = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text.trim().parse().ok(),
        Err(_) => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map(|since| since.as_secs()).ok(),
    };
    // `cargo run` sets the variable for the program as well. With the prefix PROMLET_ the program would warn of a setting
    // that it does not know.
    match seconds {
        Some(seconds) => println!("cargo::rustc-env=BUILT_S={}", seconds / DAY_S * DAY_S),
        None => println!("cargo::error=SOURCE_DATE_EPOCH is not a number of seconds"),
    }
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let out = out.join("ui");
    if let Err(why) = minified(Path::new("src/ui/assets"), &out).and_then(|()| bundled(&out)) {
        println!("cargo::error={why}");
    }
}

/// Writes the module that pages of other origins load.
fn bundled(folder: &Path) -> Result<(), String> {
    let read =
        |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|why| format!("{name}: {why}"));
    let module = bundle::bundle("embed.js", &read)?;
    std::fs::write(folder.join("embed.bundle.js"), module).map_err(|why| format!("embed.bundle.js: {why}"))
}

/// Minifies all files of a folder and its subfolders into another folder.
fn minified(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |why: std::io::Error| format!("{}: {why}", from.display());
    std::fs::create_dir_all(to).map_err(failed)?;
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let source = entry.map_err(failed)?.path();
        let target = to.join(source.file_name().unwrap_or_default());
        if source.is_dir() {
            minified(&source, &target)?;
            continue;
        }
        let text = std::fs::read_to_string(&source).map_err(failed)?;
        let text = match source.extension().and_then(|extension| extension.to_str()) {
            Some("js") => minify::module(&text),
            Some("css") => minify::style(&text),
            _ => Ok(text),
        };
        let text =
            text.map_err(|offset| format!("{}: no end of what begins at byte {offset}", source.display()))?;
        std::fs::write(&target, text).map_err(failed)?;
    }
    Ok(())
}
