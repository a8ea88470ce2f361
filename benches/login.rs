//! Whether the time of a failed login reveals that an address has an account (docs/specification.md
//! F, row 2): `cargo bench --bench login`.
//!
//! 200 pairs of failed logins at the default cost of a hash, taking turns: one for an address with
//! an account, one for an address without. Printed: the medians, their difference, and the
//! probability that two samples of one distribution differ as much (Mann-Whitney U, normal
//! approximation). That both do the same work is asserted by
//! `unknown_wrong_and_disabled_logins_get_the_same_error_after_the_same_work`.

#[path = "common/median.rs"]
mod median;

use std::sync::Arc;

use median::median;
use promlet::clock::Stopwatch;
use promlet::entropy::Entropy;
use promlet::identity::{
    Bootstrap, Client, Foundation, Identity, IdentityOptions, LoginError, Password, PasswordLogin,
};
use promlet::kv::{Control, ControlOptions, DataFolder, LastStop, MasterKey};
use promlet::model::Timestamp;

const PAIRS: usize = 200;
const KNOWN: &str = "ada@example.org";
const UNKNOWN: &str = "eve@example.org";

fn accounts(dir: &std::path::Path, now: Timestamp, rng: &mut Entropy) -> Identity {
    let folder = DataFolder::open(dir, now, rng).expect("a new folder");
    let options = ControlOptions { now, users_table: promlet::identity::USERS_TABLE };
    let (control, _) = Control::open(&folder, &options).expect("a new database");
    let foundation = Foundation {
        control: Arc::new(control),
        master_key: MasterKey([7; 32]),
        last_stop: LastStop::New,
        mark_initialised: Box::new(|_| Ok(())),
    };
    let identity = Identity::open(foundation, IdentityOptions::default(), now, rng).expect("accounts");
    let first = Bootstrap { email: KNOWN, password: Password("correct horse battery"), org: "acme" };
    identity.bootstrap(&first, now, rng).expect("accepted").expect("the first");
    identity
}

/// Returns the milliseconds of one failed login.
fn fail(identity: &Identity, email: &str, client: &Client, now: Timestamp, rng: &mut Entropy) -> f64 {
    let password = Password("not the password");
    let attempt = PasswordLogin { email, password, client, replaces: None, device: None };
    let watch = Stopwatch::start();
    let failed = identity.login(&attempt, now, rng);
    let ms = watch.elapsed_ms();
    assert!(matches!(failed, Err(LoginError::InvalidCredentials)), "{failed:?}");
    ms
}

/// Returns the two-sided probability that one distribution gives two samples that differ as much.
#[expect(clippy::cast_precision_loss, reason = "a few hundred")]
fn mann_whitney(a: &[f64], b: &[f64]) -> f64 {
    let above = |x: &f64| {
        b.iter()
            .map(|y| {
                if x > y {
                    1.0
                } else if x < y {
                    0.0
                } else {
                    0.5
                }
            })
            .sum::<f64>()
    };
    let u: f64 = a.iter().map(above).sum();
    let (n, m) = (a.len() as f64, b.len() as f64);
    let z = (u - n * m / 2.0).abs() / (n * m * (n + m + 1.0) / 12.0).sqrt();
    // The complementary error function by Abramowitz and Stegun 7.1.26, accurate to seven digits.
    let x = z / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    series.iter().rev().fold(0.0, |sum, term| (sum + term) * t) * (-x * x).exp()
}

fn main() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut rng = Entropy::seeded(1);
    let mut now = Timestamp::from_s(1_800_000_000);
    let identity = accounts(dir.path(), now, &mut rng);
    let client = Client { ip: "192.0.2.1".parse().expect("an address"), user_agent: String::new() };
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS + 10 {
        // No login is throttled: failures of the day before yesterday are forgotten.
        now = now.plus_ms(2 * 86_400_000);
        let mut of = |email| fail(&identity, email, &client, now, &mut rng);
        let (one, other) = match pair % 2 {
            0 => (of(KNOWN), of(UNKNOWN)),
            _ => {
                let other = of(UNKNOWN);
                (of(KNOWN), other)
            }
        };
        // The first ones warm up.
        if pair >= 10 {
            known.push(one);
            unknown.push(other);
        }
    }
    let (one, other) = (median(&known), median(&unknown));
    println!("known address    {one:>8.3} ms (median of {PAIRS})");
    println!("unknown address  {other:>8.3} ms, {:+.2} %", (other / one - 1.0) * 100.0);
    println!("Mann-Whitney     p = {:.3}", mann_whitney(&known, &unknown));
}
