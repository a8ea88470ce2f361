//! Hands the time of the build to the program, in `BUILT_S`: whole days in seconds since the Unix epoch, so that
//! building twice a day yields the same program. `SOURCE_DATE_EPOCH` replaces the present, for reproducible builds.

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
}
