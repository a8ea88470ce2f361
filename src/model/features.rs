//! The switches of `--enable-feature`, by the names that Prometheus gives them; the defaults are Prometheus 3's.

/// Parts of the language that Prometheus keeps behind switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Functions and aggregations that upstream calls experimental.
    pub experimental_functions: bool,
    /// `anchored` and `smoothed`.
    pub extended_range_selectors: bool,
    /// `fill`, `fill_left` and `fill_right`.
    pub fill_modifiers: bool,
}

impl Features {
    /// Everything.
    pub const ALL: Features =
        Features { experimental_functions: true, extended_range_selectors: true, fill_modifiers: true };
}

/// What of the language is switched on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// What the parser understands.
    pub syntax: Features,
    /// Names are kept until the end of a query.
    pub delayed_name_removal: bool,
    /// Counters are read with the start timestamps of their samples.
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

/// Names of what is always on here.
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

/// A name that means nothing here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown feature {name:?}; known: {}; always on: {}", SWITCHED.join(", "), ALWAYS_ON.join(", "))]
pub struct UnknownFeature {
    /// As it was given.
    pub name: String,
}

impl Switches {
    /// All of them.
    pub const ALL: Switches =
        Switches { syntax: Features::ALL, delayed_name_removal: true, use_start_timestamps: true };

    /// Turns on what `name` names; what is always on stays so.
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
    fn every_name_is_taken_and_an_unknown_one_is_told_the_known() {
        let mut switches = Switches::default();
        for name in ALWAYS_ON {
            switches.turn_on(name).expect("known");
        }
        assert_eq!(switches, Switches::default(), "what is always on has no switch");
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
