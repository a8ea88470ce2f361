//! The colours of a picture: those of the style sheet of `<metric-chart>`
//! (`src/ui/assets/chart/style.js`).

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ink(pub(super) [u8; 3]);

/// A light or a dark picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// Dark lines on white.
    #[default]
    Light,
    /// Bright lines on near black.
    Dark,
}

/// The colours of one theme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Palette {
    pub(super) background: Ink,
    pub(super) text: Ink,
    pub(super) muted: Ink,
    pub(super) grid: Ink,
    pub(super) axis: Ink,
    pub(super) series: [Ink; 8],
}

const fn ink(rgb: u32) -> Ink {
    let [_, red, green, blue] = rgb.to_be_bytes();
    Ink([red, green, blue])
}

const LIGHT: Palette = Palette {
    background: ink(0xff_ff_ff),
    text: ink(0x1c_21_30),
    muted: ink(0x5b_64_74),
    grid: ink(0xed_f0_f4),
    axis: ink(0xcd_d3_dd),
    series: [
        ink(0x25_63_c9),
        ink(0xc2_50_0a),
        ink(0x04_78_57),
        ink(0xb0_30_7f),
        ink(0x8a_61_00),
        ink(0x6d_3f_d1),
        ink(0x0b_7d_94),
        ink(0x56_60_6e),
    ],
};

const DARK: Palette = Palette {
    background: ink(0x15_17_1e),
    text: ink(0xe8_ea_f0),
    muted: ink(0x9a_a4_b5),
    grid: ink(0x23_27_33),
    axis: ink(0x3d_44_54),
    series: [
        ink(0x7a_ae_ff),
        ink(0xff_9d_5c),
        ink(0x3f_d0_a4),
        ink(0xf5_8f_c8),
        ink(0xf2_c1_4e),
        ink(0xb9_a1_ff),
        ink(0x62_d3_e8),
        ink(0xb4_bf_cc),
    ],
};

/// The dashes of lines. They change each time the colours repeat.
const LINE_DASHES: [&[f32]; 4] = [&[], &[6.0, 4.0], &[2.0, 3.0], &[9.0, 4.0, 2.0, 4.0]];
/// The dashes of the marks in the legend, in the same order.
const MARK_DASHES: [&[f32]; 4] = [&[], &[5.0, 3.0], &[2.0, 2.0], &[7.0, 2.0, 2.0, 2.0]];

impl Theme {
    pub(super) fn palette(self) -> &'static Palette {
        match self {
            Theme::Light => &LIGHT,
            Theme::Dark => &DARK,
        }
    }
}

impl Palette {
    /// Returns the colour of the series at `place`, from 0.
    pub(super) fn of(&self, place: usize) -> Ink {
        self.series[place % self.series.len()]
    }
}

/// Returns the dashes of the line of the series at `place`.
pub(super) fn line_dashes(place: usize) -> &'static [f32] {
    LINE_DASHES[place / LIGHT.series.len() % LINE_DASHES.len()]
}

/// Returns the dashes of the mark of the series at `place`.
pub(super) fn mark_dashes(place: usize) -> &'static [f32] {
    MARK_DASHES[place / LIGHT.series.len() % MARK_DASHES.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_and_dashes_are_those_of_the_web_component() {
        let sheet = include_str!("../ui/assets/chart/style.js");
        let hex = |Ink([red, green, blue])| format!("#{red:02x}{green:02x}{blue:02x}");
        let series = LIGHT
            .series
            .iter()
            .zip(&DARK.series)
            .map(|(light, dark)| (format!("['{}', '{}']", hex(*light), hex(*dark)), "series"));
        let named = |name: &'static str, light, dark| {
            (format!("--metric-chart-{name}, light-dark({}, {}))", hex(light), hex(dark)), name)
        };
        let others = [
            named("background", LIGHT.background, DARK.background),
            named("text", LIGHT.text, DARK.text),
            named("muted", LIGHT.muted, DARK.muted),
            named("grid", LIGHT.grid, DARK.grid),
            named("axis", LIGHT.axis, DARK.axis),
        ];
        let mut last = 0;
        for (text, name) in series.chain(others) {
            let at = sheet.find(&text).unwrap_or_else(|| panic!("{name}: no {text}"));
            if name == "series" {
                assert!(at > last, "the order of {text}");
                last = at;
            }
        }
        let paint = include_str!("../ui/assets/chart/paint.js");
        let list = |dashes: &[f32]| dashes.iter().map(f32::to_string).collect::<Vec<_>>().join(", ");
        let all: Vec<String> = LINE_DASHES.iter().map(|dashes| format!("[{}]", list(dashes))).collect();
        assert!(paint.contains(&format!("const DASHES = [{}];", all.join(", "))));
    }
}
