//! Conversions between numbers, which saturate.

/// Returns a position in pixels. Positions are within a picture, so `f32` is exact enough.
#[expect(clippy::cast_possible_truncation, reason = "the nearest f32 is wanted")]
pub(super) fn pixels(value: f64) -> f32 {
    value as f32
}

/// Returns the whole part of a number as an index; 0 for negative numbers and NaN.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
pub(super) fn index(value: f64) -> usize {
    value as usize
}

/// Returns the whole part of a number; 0 for NaN.
#[expect(clippy::cast_possible_truncation, reason = "`as` saturates")]
pub(super) fn whole(value: f64) -> i64 {
    value as i64
}

/// Returns a channel of a colour, from a number from 0 to 255.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
pub(super) fn channel(value: f32) -> u8 {
    value.round() as u8
}
