//! The printed figures, each with its goal.

use crate::median::median;
use crate::process::Cost;

impl Cost {
    /// Returns the medians of time, and the greatest memory.
    pub(crate) fn median(all: &[Cost]) -> Cost {
        let of = |part: fn(&Cost) -> f64| median(&all.iter().map(part).collect::<Vec<_>>());
        Cost {
            wall_s: of(|cost| cost.wall_s),
            cpu_s: of(|cost| cost.cpu_s),
            peak_bytes: all.iter().map(|cost| cost.peak_bytes).max().unwrap_or_default(),
        }
    }

    pub(crate) fn peak_mb(&self) -> f64 {
        self.peak_bytes as f64 / 1e6
    }
}

/// The cost of copying some samples.
pub(crate) struct Measured {
    pub(crate) name: &'static str,
    pub(crate) samples: u64,
    pub(crate) cost: Cost,
}

impl Measured {
    pub(crate) fn samples_per_s(&self) -> f64 {
        self.samples as f64 / self.cost.wall_s
    }
}

pub(crate) fn print_costs(all: &[Measured]) {
    println!("\n| copy | wall s | M samples/s | CPU s | ns of CPU per sample | peak memory in MB |");
    println!("|---|---|---|---|---|---|");
    for one in all {
        let Cost { wall_s, cpu_s, .. } = one.cost;
        println!(
            "| {} | {wall_s:.2} | {:.2} | {cpu_s:.2} | {:.0} | {:.0} |",
            one.name,
            one.samples_per_s() / 1e6,
            cpu_s * 1e9 / one.samples as f64,
            one.cost.peak_mb()
        );
    }
    println!();
}

/// Prints a figure beside its goal, the least good one.
pub(crate) fn print_at_least(name: &str, figure: f64, goal: f64) {
    println!("{name}: {figure:.2}, goal at least {goal}: {}", outcome(figure >= goal));
}

/// As [`print_at_least`], for the greatest good one.
pub(crate) fn print_at_most(name: &str, figure: f64, goal: f64) {
    println!("{name}: {figure:.2}, goal at most {goal}: {}", outcome(figure <= goal));
}

const fn outcome(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}
