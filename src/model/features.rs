//! The switches of `--enable-feature`, with the names of Prometheus; the defaults are those of
//! Prometheus 3.

/// Parts of the language that Prometheus enables by switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Functions and aggregations that Prometheus calls experimental.
    pub experimental_functions: bool,
    /// `anchored` and `smoothed`.
    pub extended_range_selectors: bool,
    /// `fill`, `fill_left` and `fill_right`.
    pub fill_modifiers: bool,
}

impl Features {
    /// All features.
    pub const ALL: Features =
        Features { experimental_functions: true, extended_range_selectors: true, fill_modifiers: true };
}

/// The enabled parts of the language.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Features of the parser.
    pub syntax: Features,
    /// Metric names are removed at the end of a query only.
    pub delayed_name_removal: bool,
    /// Counters are evaluated with the start timestamps of their samples.
    pub use_start_timestamps: bool,
}

/// Names that have a switch.
const SWITCHED: [&str; 5] = [
    "promql-binop-fill-modifiers",
    "promql-delayed-name-removal",
    "promql-experimental-functions",
    "promql-extended-range-selectors",
    "use-start-timestamps",
];

/// Names of features that are always enabled here.
const ALWAYS_ON: [&str; 9] = [
    "exemplar-storage",
    "metadata-wal-records",
    "native-histograms",
    "ooo-native-histograms",
    "promql-at-modifier",
    "promql-duration-expr",
    "promql-negative-offset",
    "st-storage",
    "utf8-names",
];

/// A name that is not a feature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown feature {name:?}; known: {}; always on: {}", SWITCHED.join(", "), ALWAYS_ON.join(", "))]
pub struct UnknownFeature {
    /// The given name.
    pub name: String,
}

impl Switches {
    /// All switches enabled.
    pub const ALL: Switches =
        Switches { syntax: Features::ALL, delayed_name_removal: true, use_start_timestamps: true };

    /// Enables the feature `name`; has no effect for one that is always enabled.
    ///
    /// # Errors
    /// [`UnknownFeature`] for any other name.
    pub fn turn_on(&mut self, name: &str) -> Result<(), UnknownFeature> {
        match name {
            "promql-binop-fill-modifiers" => self.syntax.fill_modifiers = true,
            "promql-delayed-name-removal" => self.delayed_name_removal = true,
            "promql-experimental-functions" => self.syntax.experimental_functions = true,
            "promql-extended-range-selectors" => self.syntax.extended_range_selectors = true,
            "use-start-timestamps" => self.use_start_timestamps = true,
            name if ALWAYS_ON.contains(&name) => {}
            name => return Err(UnknownFeature { name: name.to_owned() }),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_name_is_accepted_and_the_error_for_others_lists_them() {
        let mut switches = Switches::default();
        for name in ALWAYS_ON {
            switches.turn_on(name).expect("known");
        }
        assert_eq!(switches, Switches::default(), "features that are always on have no switch");
        for name in SWITCHED {
            let before = switches;
            switches.turn_on(name).expect("known");
            assert_ne!(switches, before, "{name}");
        }
        assert_eq!(switches, Switches::ALL);
        let refusal = switches.turn_on("promql-everything").expect_err("unknown").to_string();
        assert!(refusal.contains("promql-everything"), "{refusal}");
        assert!(SWITCHED.iter().all(|name| refusal.contains(name)), "{refusal}");
    }
}
