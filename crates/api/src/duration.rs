//! Durations as Kubernetes writes them: Go's notation.

use std::time::Duration;

use thiserror::Error;

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DurationError {
    /// It is not written in Go's notation.
    #[error("is not a duration such as 90s, 5m or 1h30m")]
    Notation,
    /// It is below zero.
    #[error("is negative")]
    Negative,
    /// Go could not hold it.
    #[error("is longer than 2562047h47m16s")]
    TooLong,
}

/// Units and their length in nanoseconds.
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
/// Digits behind the point that are read.
const MAX_FRACTION: usize = 18;

/// Reads a duration in Go's notation: `300ms`, `90s`, `1h30m`, `1.5h`, `0`.
///
/// Below a nanosecond it is cut, as in Go.
///
/// # Errors
/// When the text is not in this notation, is negative, or longer than Go's type can hold.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.is_empty() {
        return Err(DurationError::Notation);
    }
    let mut total: u128 = 0;
    if rest != "0" {
        while !rest.is_empty() {
            let (nanos, behind) = term(rest)?;
            total = total.saturating_add(nanos);
            rest = behind;
        }
    }
    if negative && total > 0 {
        return Err(DurationError::Negative);
    }
    // Go counts nanoseconds in a signed integer.
    let nanos = i64::try_from(total).map_err(|_| DurationError::TooLong)?;
    Ok(Duration::from_nanos(nanos.unsigned_abs()))
}

/// One number with its unit, in nanoseconds, and what stands behind it.
fn term(text: &str) -> Result<(u128, &str), DurationError> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(DurationError::Notation);
    }
    let end = rest
        .find(|c: char| c == '.' || c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (name, rest) = rest.split_at(end);
    let unit = UNITS.iter().find(|(unit, _)| *unit == name);
    let unit = u128::from(unit.ok_or(DurationError::Notation)?.1);
    // More digits than these say nothing that a nanosecond could show.
    let fraction = &fraction[..fraction.len().min(MAX_FRACTION)];
    let scale = fraction.bytes().fold(1_u128, |scale, _| scale * 10);
    let nanos = number(whole)
        .saturating_mul(unit)
        .saturating_add(number(fraction) * unit / scale);
    Ok((nanos, rest))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// The number that some digits stand for; the greatest there is when it is greater.
fn number(digits: &str) -> u128 {
    digits.bytes().fold(0, |number: u128, digit| {
        number.saturating_mul(10).saturating_add(u128::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_go_are_read_to_the_nanosecond() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("-0s", 0),
            ("+5s", 5_000_000_000),
            ("1ns", 1),
            ("5us", 5_000),
            ("5\u{b5}s", 5_000),
            ("5\u{3bc}s", 5_000),
            ("1.5ms", 1_500_000),
            ("1h30m", 5_400_000_000_000),
            ("1m1.25s", 61_250_000_000),
            (".5h", 1_800_000_000_000),
            ("5.s", 5_000_000_000),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("0.100000000000000000000h", 360_000_000_000),
            ("9223372036854775807ns", 9_223_372_036_854_775_807),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for text in [
            "", "3", "-", "s", ".", "-.", ".s", "+.s", "5 s", " 5s", "5s ", "1d", "1e3s", "inf", "NaNs", "--5s",
            "1-5s", "5sm", "1h 30m", "١s",
        ] {
            assert_eq!(parse_duration(text), Err(DurationError::Notation), "{text:?}");
        }
        for text in ["-1ns", "-1h30m"] {
            assert_eq!(parse_duration(text), Err(DurationError::Negative), "{text}");
        }
        let nines = "9".repeat(400);
        for text in [
            "9223372036854775808ns".to_owned(),
            format!("{nines}h"),
            format!("{nines}h{nines}h"),
        ] {
            assert_eq!(parse_duration(&text), Err(DurationError::TooLong), "{text}");
        }
    }
}
