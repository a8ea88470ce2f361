//! The font of pictures: Noto Sans, which is part of the program.

use notosans::REGULAR_TTF;
use ttf_parser::{Face, GlyphId};

/// The width of the box of a missing character, as a fraction of the font size.
const BOX_WIDTH: f32 = 0.6;

/// The parsed tables of the font. Cheap to make.
pub(super) struct Font {
    face: Face<'static>,
    units: f32,
}

/// The drawing of a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drawn {
    /// An outline of the font.
    Glyph(GlyphId),
    /// A box, because the font does not have the character.
    Box,
}

impl Font {
    pub(super) fn new() -> Font {
        let face = Face::parse(REGULAR_TTF, 0).expect("the font of the package is valid");
        let units = f32::from(face.units_per_em());
        Font { face, units }
    }

    pub(super) fn drawn(&self, character: char) -> Drawn {
        self.face.glyph_index(character).map_or(Drawn::Box, Drawn::Glyph)
    }

    pub(super) fn face(&self) -> &Face<'static> {
        &self.face
    }

    /// Returns the factor from units of the font to pixels.
    pub(super) fn factor(&self, size: f32) -> f32 {
        size / self.units
    }

    /// Returns the pixels to the beginning of the next character.
    pub(super) fn advance(&self, drawn: Drawn, size: f32) -> f32 {
        match drawn {
            Drawn::Glyph(id) => f32::from(self.face.glyph_hor_advance(id).unwrap_or(0)) * self.factor(size),
            Drawn::Box => BOX_WIDTH * size,
        }
    }

    /// Returns the width of a text.
    pub(super) fn width(&self, text: &str, size: f32) -> f32 {
        text.chars().map(|character| self.advance(self.drawn(character), size)).sum()
    }

    /// Returns a text that is at most `width` wide. A text that was cut ends with `…`.
    pub(super) fn fitted(&self, text: &str, size: f32, width: f32) -> String {
        if self.width(text, size) <= width {
            return text.to_owned();
        }
        let left = width - self.width("…", size);
        let mut taken = 0.0;
        let fits = |character: &char| {
            taken += self.advance(self.drawn(*character), size);
            taken <= left
        };
        let mut out: String = text.chars().take_while(fits).collect();
        out.truncate(out.trim_end().len());
        out.push('…');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_the_characters_of_the_pictures_own_texts() {
        let font = Font::new();
        for character in " 0123456789-+−.,:;%/µ·…{}=\"()UTCKMGTPiBkmn".chars() {
            assert_ne!(font.drawn(character), Drawn::Box, "{character}");
        }
        for character in "äéßжλ".chars() {
            assert_ne!(font.drawn(character), Drawn::Box, "{character}");
        }
        assert_eq!(font.drawn('漢'), Drawn::Box);
    }

    #[test]
    fn a_text_is_cut_to_its_width() {
        let font = Font::new();
        let text = "a long name of a series";
        assert_eq!(font.fitted(text, 12.0, 1_000.0), text);
        for width in [0.0, 5.0, 20.0, 60.0, 100.0] {
            let cut = font.fitted(text, 12.0, width);
            let least = font.width("…", 12.0);
            assert!(cut.ends_with('…') && font.width(&cut, 12.0) <= f32::max(width, least), "{cut}");
        }
    }
}
