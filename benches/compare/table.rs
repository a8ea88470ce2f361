//! The table of results.

/// A figure of the three servers, promlet first.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) figures: [f64; 3],
    /// The CPU time beside a wall time, in the same unit.
    pub(crate) cpu: Option<[f64; 3]>,
}

impl Row {
    pub(crate) fn new(name: impl Into<String>, figures: [f64; 3]) -> Row {
        Row { name: name.into(), figures, cpu: None }
    }
}

/// Prints the rows with the ratios of promlet to each peer.
pub(crate) fn print(names: [&str; 3], rows: &[Row]) {
    println!("| figure | {} | {} | {} | ÷ {} | ÷ {} |", names[0], names[1], names[2], names[1], names[2]);
    println!("|---|---|---|---|---|---|");
    for Row { name, figures, cpu } in rows {
        let cell = |i: usize| match cpu {
            Some(cpu) => format!("{} ({})", number(figures[i]), number(cpu[i])),
            None => number(figures[i]),
        };
        let ratio = |i: usize| {
            let of = |figures: &[f64; 3]| match figures[i] {
                0.0 => "–".to_owned(),
                theirs => format!("{:.2}", figures[0] / theirs),
            };
            match cpu {
                Some(cpu) => format!("{} ({})", of(figures), of(cpu)),
                None => of(figures),
            }
        };
        println!("| {name} | {} | {} | {} | {} | {} |", cell(0), cell(1), cell(2), ratio(1), ratio(2));
    }
}

fn number(value: f64) -> String {
    match value {
        value if value >= 100.0 || value == 0.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}
