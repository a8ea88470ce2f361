//! A bound on the memory of many items at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A bound on the bytes of all [`ByteCharge`]s, or a share of one. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct ByteBudget(Arc<ByteBudgetState>);

#[derive(Debug)]
struct ByteBudgetState {
    bytes_max: u64,
    /// The bytes of all shares.
    all: Arc<AtomicU64>,
    /// The bytes of this share; `None` if the budget is not a share.
    own: Option<AtomicU64>,
}

impl ByteBudget {
    /// Returns a budget of at most this many bytes, inclusive.
    pub fn new(bytes_max: u64) -> ByteBudget {
        ByteBudget(Arc::new(ByteBudgetState { bytes_max, all: Arc::default(), own: None }))
    }

    /// Returns a share of this budget. It holds at most as many bytes as stay free: alone, half of
    /// the budget.
    pub fn share(&self) -> ByteBudget {
        let ByteBudgetState { bytes_max, all, .. } = &*self.0;
        let own = Some(AtomicU64::default());
        ByteBudget(Arc::new(ByteBudgetState { bytes_max: *bytes_max, all: Arc::clone(all), own }))
    }

    /// Returns the bytes in use by all shares.
    pub fn bytes(&self) -> u64 {
        self.0.all.load(Ordering::Relaxed)
    }

    /// Returns a charge of no bytes.
    pub fn charge(&self) -> ByteCharge {
        ByteCharge { budget: self.clone(), bytes: 0 }
    }
}

/// Bytes of a [`ByteBudget`], which are released on drop.
#[derive(Debug)]
pub struct ByteCharge {
    budget: ByteBudget,
    bytes: u64,
}

impl ByteCharge {
    /// Returns the most bytes of the budget, inclusive.
    pub fn bytes_max(&self) -> u64 {
        self.budget.0.bytes_max
    }

    /// Adds bytes. Returns false, and adds none, if too few would stay free.
    #[must_use]
    pub fn grow(&mut self, bytes: u64) -> bool {
        let ByteBudgetState { bytes_max, all, own } = &*self.budget.0;
        let own_bytes =
            own.as_ref().map_or(0, |own| own.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes));
        let grown = all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| {
            let all = all.checked_add(bytes)?;
            (own_bytes <= bytes_max.checked_sub(all)?).then_some(all)
        });
        match (&grown, own) {
            (Ok(_), _) => self.bytes = self.bytes.saturating_add(bytes),
            (Err(_), Some(own)) => drop(own.fetch_sub(bytes, Ordering::Relaxed)),
            (Err(_), None) => {}
        }
        grown.is_ok()
    }
}

impl Drop for ByteCharge {
    fn drop(&mut self) {
        let ByteBudgetState { all, own, .. } = &*self.budget.0;
        all.fetch_sub(self.bytes, Ordering::Relaxed);
        if let Some(own) = own {
            own.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_fill_a_budget_to_its_last_byte() {
        let budget = ByteBudget::new(1_000);
        let (mut first, mut second) = (budget.charge(), budget.charge());
        assert!(first.grow(600) && second.grow(400) && !second.grow(1));
        drop(first);
        assert!(second.grow(600) && !second.grow(u64::MAX));
        drop(second);
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn a_share_of_a_budget_holds_at_most_as_many_bytes_as_stay_free() {
        let budget = ByteBudget::new(1_000);
        let (one, two) = (budget.share(), budget.share());
        let (mut first, mut second, mut other) = (one.charge(), one.charge(), two.charge());
        assert!(first.grow(300) && second.grow(200));
        assert!(!second.grow(1), "two charges have half of it");
        assert!(other.grow(250) && !other.grow(1), "250 bytes stay free");
        assert_eq!(one.bytes(), 750);
        drop(first);
        assert!(other.grow(150) && !other.grow(1), "400 bytes stay free");
        assert!(!second.grow(u64::MAX));
        drop((second, other));
        assert_eq!(one.bytes(), 0);
        assert!(two.charge().grow(500), "nothing is left in a share");
    }
}
