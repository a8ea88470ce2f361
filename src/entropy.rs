//! Randomness from a single source: the operating system's generator in production, a seed in
//! tests.

use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng, TryRng};

/// A cryptographically secure generator. The core takes `rng: &mut Entropy` as an argument.
pub struct Entropy(EntropySource);

enum EntropySource {
    System,
    Seeded(Box<StdRng>),
}

impl Entropy {
    /// Returns the operating system's generator.
    pub fn system() -> Entropy {
        Entropy(EntropySource::System)
    }

    /// Returns a generator of repeatable bytes for tests and generated data (ChaCha12, only as
    /// secure as the seed).
    pub fn seeded(seed: u64) -> Entropy {
        Entropy(EntropySource::Seeded(Box::new(StdRng::seed_from_u64(seed))))
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        match &mut self.0 {
            EntropySource::System => {
                SysRng
                    .try_fill_bytes(out)
                    .expect("the operating system's random source works; no secret can be made without it");
            }
            EntropySource::Seeded(rng) => rng.fill_bytes(out),
        }
    }

    /// Returns `N` random bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.fill(&mut out);
        out
    }

    /// Returns a uniform number in `[0, 1)` with 53 random bits.
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
