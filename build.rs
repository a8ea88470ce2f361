//! Sets the compiler's environment variable `BUILT_S` to the day of the build, in seconds since the
//! Unix epoch. It is rounded down to whole days, so that two builds on one day yield the same
//! program. `SOURCE_DATE_EPOCH` replaces the clock, for reproducible builds.
//!
//! Writes the files of the web UI in their served form to `OUT_DIR/ui`, from which `src/ui/mod.rs`
//! includes them: style sheets and data without white space, and modules in bundles
//! (`src/ui/bundles.rs`).

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

/// The module that contains the style sheets of the element for dashboards as strings.
const SHEETS: &str = "embedded/sheets.js";
/// The end of the names of modules whose style sheet is a template.
const STYLE_MODULE: &str = "style.js";

#[expect(
    clippy::disallowed_methods,
    reason = "a build script is not the program, whose clock is an argument"
)]
fn main() {
    // Other changes need no new build of the library.
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=Cargo.lock");
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let seconds = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text.trim().parse().ok(),
        Err(_) => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map(|since| since.as_secs()).ok(),
    };
    // `cargo run` sets the variable for the program, too. So its name does not begin with PROMLET_:
    // the program would warn of an unknown setting.
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

/// Writes the files of the UI from the folder `from` to the folder `to`, in their served form.
fn ui(from: &Path, to: &Path) -> Result<(), String> {
    // An earlier build may have written files with other names.
    _ = std::fs::remove_dir_all(to);
    let mut modules = BTreeMap::new();
    minified(from, to, "", &mut modules)?;
    let read = |name: &str| {
        let module = modules.get(name).ok_or_else(|| format!("{name} is missing"))?;
        match name {
            SHEETS => with_sheets(module, to),
            _ if name.ends_with(STYLE_MODULE) => Ok(minify::style_in_template(module)),
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

/// Returns the module [`SHEETS`] with the contents of the style sheets that it names.
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

/// Minifies the files of a folder and its subfolders. Adds modules to `modules` by their name,
/// which begins with `prefix`, and writes all other files to the folder `to`.
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
        let text = text.map_err(|offset| format!("{name}: the token at byte {offset} does not end"))?;
        if kind == "js" {
            modules.insert(name, text);
        } else {
            std::fs::write(&target, &text).map_err(failed)?;
        }
    }
    Ok(())
}
