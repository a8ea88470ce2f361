//! Hands the time of the build to the program, in `BUILT_S`: whole days in seconds since the Unix epoch, so that
//! building twice a day yields the same program. `SOURCE_DATE_EPOCH` replaces the present, for reproducible builds.
//!
//! Writes the files of the web UI as they are served into `OUT_DIR/ui`, from which `src/ui/mod.rs` includes them: style
//! sheets and data without white space, and the modules in bundles (`src/ui/bundles.rs`).

#[path = "src/ui/bundle.rs"]
mod bundle;
#[path = "src/ui/bundles.rs"]
mod bundles;
#[path = "src/ui/imports.rs"]
mod imports;
#[path = "src/ui/minify.rs"]
mod minify;
#[path = "src/ui/short_names.rs"]
mod short_names;
#[path = "src/ui/tokens.rs"]
mod tokens;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const DAY_S: u64 = 86_400;

/// The module that has the style sheets of the element for dashboards as texts.
const SHEETS: &str = "embedded/sheets.js";

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
    if let Err(why) = ui(Path::new("src/ui/assets"), &out) {
        println!("cargo::error={why}");
    }
}

/// Writes the files of the UI as they are served.
fn ui(from: &Path, to: &Path) -> Result<(), String> {
    // Files of an earlier build may have other names.
    _ = std::fs::remove_dir_all(to);
    let mut modules = BTreeMap::new();
    minified(from, to, "", &mut modules)?;
    let read = |name: &str| {
        let module = modules.get(name).ok_or_else(|| format!("{name} is missing"))?;
        match name {
            SHEETS => with_sheets(module, to),
            "chart/style.js" | "alert_list/style.js" => Ok(minify::style_in_template(module)),
            _ => Ok(module.clone()),
        }
    };
    for (entry, chunks) in bundles::BUNDLES {
        let (module, parts) = bundle::split(entry, chunks, &read)?;
        let names = chunks.files.iter().map(|(name, _)| *name);
        for (name, text) in std::iter::once(*entry).chain(names).zip(std::iter::once(module).chain(parts)) {
            std::fs::write(to.join(name), text).map_err(|why| format!("{name}: {why}"))?;
        }
    }
    Ok(())
}

/// Returns the module [`SHEETS`] with the texts of the sheets that it names.
fn with_sheets(module: &str, folder: &Path) -> Result<String, String> {
    let mut texts = String::new();
    for name in module.split('\'').filter(|name| name.ends_with(".css")) {
        let css = std::fs::read_to_string(folder.join(name)).map_err(|why| format!("{name}: {why}"))?;
        let css = css.replace('\\', "\\\\").replace('`', "\\`").replace("${", "\\${");
        texts.push_str(&format!("'{name}':`{css}`,"));
    }
    if !module.contains("TEXTS={}") {
        return Err(format!("{SHEETS} has no empty table"));
    }
    Ok(module.replace("TEXTS={}", &format!("TEXTS={{{texts}}}")))
}

/// Minifies all files of a folder and its subfolders into another folder, except for the modules, which it collects by
/// name; names begin with `prefix`.
fn minified(
    from: &Path,
    to: &Path,
    prefix: &str,
    modules: &mut BTreeMap<String, String>,
) -> Result<(), String> {
    let failed = |why: std::io::Error| format!("{}: {why}", from.display());
    std::fs::create_dir_all(to).map_err(failed)?;
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let source = entry.map_err(failed)?.path();
        let name = format!("{prefix}{}", source.file_name().unwrap_or_default().display());
        let target = to.join(source.file_name().unwrap_or_default());
        if source.is_dir() {
            minified(&source, &target, &format!("{name}/"), modules)?;
            continue;
        }
        let text = std::fs::read_to_string(&source).map_err(failed)?;
        let kind = source.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let text = match kind {
            "js" => minify::module(&text),
            "css" => minify::style(&text),
            "json" => Ok(minify::data(&text)),
            _ => Ok(text),
        };
        let text = text.map_err(|offset| format!("{name}: no end of what begins at byte {offset}"))?;
        if kind == "js" {
            modules.insert(name, text);
        } else {
            std::fs::write(&target, &text).map_err(failed)?;
        }
    }
    Ok(())
}
