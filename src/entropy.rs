//! Chance, from one place: the operating system's generator in production, a seed in tests.

use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng, TryRng};

/// A cryptographically secure generator. The core takes `rng: &mut Entropy` as an argument.
pub struct Entropy(Source);

enum Source {
    System,
    Seeded(Box<StdRng>),
}

impl Entropy {
    /// The operating system's generator.
    pub fn system() -> Entropy {
        Entropy(Source::System)
    }

    /// Repeatable bytes for tests and generated data; ChaCha12, so secure only as far as the seed is secret.
    pub fn seeded(seed: u64) -> Entropy {
        Entropy(Source::Seeded(Box::new(StdRng::seed_from_u64(seed))))
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        match &mut self.0 {
            Source::System => {
                SysRng
                    .try_fill_bytes(out)
                    .expect("the operating system's random source answers; without it no secret can be made");
            }
            Source::Seeded(rng) => rng.fill_bytes(out),
        }
    }

    /// `N` random bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.fill(&mut out);
        out
    }

    /// A uniform number in `[0, 1)`, 53 random bits.
    pub fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit the mantissa exactly")]
        let n = (u64::from_le_bytes(self.bytes()) >> 11) as f64;
        n / 9_007_199_254_740_992.0
    }
}

impl std::fmt::Debug for Entropy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entropy(***)")
    }
}
