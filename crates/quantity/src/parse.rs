//! Text to amount, by the rules of Go's `resource.ParseQuantity`.

use thiserror::Error;

use crate::amount::{Format, NANOS_PER_UNIT, Quantity};

/// Kubernetes caps amounts in binary notation, and only those, at the greatest `int64`.
const BINARY_CAP_NANOS: u128 = i64::MAX.unsigned_abs() as u128 * NANOS_PER_UNIT.unsigned_abs();
/// Nano is ten to the minus nine.
const NANO_DIGITS: i64 = 9;

/// Why a text is not a quantity; the three cases are those of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParseError {
    /// The text as a whole is not a number followed by a suffix.
    #[error(
        "not a quantity: it must be a number followed by one of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent such as e3"
    )]
    Format,
    /// There are no digits where digits are needed.
    #[error("the numeric part of the quantity has no digits")]
    Numeric,
    /// The suffix is none that Kubernetes knows.
    #[error(
        "the suffix of the quantity is unknown: use one of n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent such as e3"
    )]
    Suffix,
}

impl Quantity {
    /// Reads a quantity in any notation that Kubernetes accepts.
    ///
    /// Parts finer than a billionth of a unit are rounded away from zero, as in Kubernetes. Surrounding white space is
    /// an error here (the JSON form allows it, see the `Deserialize` implementation).
    ///
    /// # Errors
    /// A [`ParseError`] where Kubernetes refuses the text too.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if text.is_empty() {
            return Err(ParseError::Format);
        }
        let parts = Parts::split(text.as_bytes())?;
        let suffix = Suffix::interpret(parts.suffix).ok_or(ParseError::Suffix)?;
        if !parts.has_digits && !suffix.is_fast(&parts) {
            return Err(ParseError::Numeric);
        }
        let magnitude = match suffix {
            Suffix::Decimal { exponent, .. } => {
                decimal_nanos(parts.digits(), parts.digit_count(), parts.shift(exponent))
            }
            Suffix::Binary { exponent } => binary_nanos(&parts, exponent).min(BINARY_CAP_NANOS),
        };
        let saturated = magnitude > i128::MAX.unsigned_abs();
        let magnitude = i128::try_from(magnitude).unwrap_or(i128::MAX);
        let format = match suffix {
            Suffix::Binary { .. } if magnitude > 0 && magnitude < NANOS_PER_UNIT => Format::DecimalSi,
            other => other.format(),
        };
        let nanos = if parts.negative {
            magnitude.saturating_neg()
        } else {
            magnitude
        };
        let quantity = Self::from_nanos(nanos, format);
        Ok(
            if saturated || (suffix.prints_unchanged(&parts) && quantity.canonical() != text) {
                quantity.with_text(text)
            } else {
                quantity
            },
        )
    }
}

/// A text cut into its pieces, leading zeros removed.
struct Parts<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    suffix: &'a [u8],
    /// Whether the text had any digit before the suffix: `.` alone is a zero on Go's short way and an error on its
    /// long one.
    has_digits: bool,
}

impl<'a> Parts<'a> {
    fn split(text: &'a [u8]) -> Result<Self, ParseError> {
        let (negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            _ => (false, text),
        };
        let (zeros, rest) = split_while(unsigned, |byte| byte == b'0');
        let (whole, rest) = split_while(rest, |byte| byte.is_ascii_digit());
        let (fraction, suffix) = match rest {
            [b'.', rest @ ..] => split_while(rest, |byte| byte.is_ascii_digit()),
            _ => (&[][..], rest),
        };
        let (_, rest) = split_while(suffix, |byte| b"eEinumkKMGTP".contains(&byte));
        let rest = match rest {
            [b'-' | b'+', rest @ ..] => rest,
            _ => rest,
        };
        if !rest.iter().all(u8::is_ascii_digit) {
            return Err(ParseError::Format);
        }
        // Go reads a sign, or nothing but zeros, as the number zero.
        let has_digits =
            !(zeros.is_empty() && whole.is_empty() && fraction.is_empty()) || rest.is_empty() && unsigned.is_empty();
        Ok(Self {
            negative,
            whole,
            fraction,
            suffix,
            has_digits,
        })
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.whole
            .iter()
            .chain(self.fraction)
            .map(|byte| byte.saturating_sub(b'0'))
    }

    fn digit_count(&self) -> usize {
        self.whole.len().saturating_add(self.fraction.len())
    }

    /// Digits as Go counts them: a missing whole part counts as the digit 0.
    fn counted_digits(&self) -> usize {
        self.whole.len().max(1).saturating_add(self.fraction.len())
    }

    /// Powers of ten from "all digits read as one integer" to nano units.
    fn shift(&self, exponent: i32) -> i64 {
        let fraction = i64::try_from(self.fraction.len()).unwrap_or(i64::MAX);
        i64::from(exponent).saturating_sub(fraction).saturating_add(NANO_DIGITS)
    }
}

fn split_while(bytes: &[u8], keep: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| !keep(*byte)).unwrap_or(bytes.len());
    bytes.split_at(end)
}

#[derive(Clone, Copy)]
enum Suffix {
    Decimal { exponent: i32, format: Format },
    Binary { exponent: u32 },
}

impl Suffix {
    fn interpret(suffix: &[u8]) -> Option<Self> {
        let si = |exponent| {
            Some(Self::Decimal {
                exponent,
                format: Format::DecimalSi,
            })
        };
        let binary = |exponent| Some(Self::Binary { exponent });
        match suffix {
            b"n" => si(-9),
            b"u" => si(-6),
            b"m" => si(-3),
            b"" => si(0),
            b"k" => si(3),
            b"M" => si(6),
            b"G" => si(9),
            b"T" => si(12),
            b"P" => si(15),
            b"E" => si(18),
            b"Ki" => binary(10),
            b"Mi" => binary(20),
            b"Gi" => binary(30),
            b"Ti" => binary(40),
            b"Pi" => binary(50),
            b"Ei" => binary(60),
            [b'e' | b'E', exponent @ ..] => {
                let exponent = std::str::from_utf8(exponent).ok()?.parse::<i64>().ok()?;
                // Go cuts the exponent to 32 bits. The API server reads it so, and so must whoever charges for it.
                let [a, b, c, d, ..] = exponent.to_le_bytes();
                let exponent = i32::from_le_bytes([a, b, c, d]);
                Some(Self::Decimal {
                    exponent,
                    format: Format::DecimalExponent,
                })
            }
            _ => None,
        }
    }

    fn format(self) -> Format {
        match self {
            Self::Decimal { format, .. } => format,
            Self::Binary { .. } => Format::BinarySi,
        }
    }

    /// Whether Go reads the text on its short way, through an int64.
    fn is_fast(self, parts: &Parts<'_>) -> bool {
        let digits = parts.counted_digits();
        match self {
            Self::Decimal { exponent, .. } => digits <= 18 && parts.shift(exponent) >= 0,
            Self::Binary { exponent } => {
                let exponent_digits = usize::try_from(exponent / 10).unwrap_or(usize::MAX).saturating_mul(3);
                parts.fraction.is_empty() && digits.saturating_add(exponent_digits) <= 14
            }
        }
    }

    /// Whether Go keeps the text as the printed form instead of computing one: `010Mi`, `1.500`, `+5`.
    fn prints_unchanged(self, parts: &Parts<'_>) -> bool {
        if !self.is_fast(parts) {
            return false;
        }
        match self {
            Self::Decimal { exponent, .. } => {
                let starts_with_zero = parts.whole.is_empty();
                let ends_with_thousands = parts.counted_digits() >= 3 && ends_with_three_zeros(parts);
                parts.shift(exponent) % 3 == 0 && !ends_with_thousands && !starts_with_zero
            }
            Self::Binary { .. } => {
                parts
                    .digits()
                    .fold(0_u8, |low, digit| low.wrapping_mul(10).wrapping_add(digit))
                    & 7
                    != 0
            }
        }
    }
}

fn ends_with_three_zeros(parts: &Parts<'_>) -> bool {
    let mut digits = parts.fraction.iter().rev().chain(parts.whole.iter().rev());
    (0..3).all(|_| digits.next() == Some(&b'0'))
}

/// `digits` read as one integer, times ten to the power of `shift`, rounded up, saturating.
fn decimal_nanos(digits: impl Iterator<Item = u8>, count: usize, shift: i64) -> u128 {
    let dropped = usize::try_from(shift.min(0).unsigned_abs()).unwrap_or(usize::MAX);
    let kept = count.saturating_sub(dropped);
    let mut nanos = 0_u128;
    let mut rest = false;
    for (position, digit) in digits.enumerate() {
        if position < kept {
            nanos = nanos.saturating_mul(10).saturating_add(u128::from(digit));
        } else {
            rest |= digit != 0;
        }
    }
    nanos = nanos.saturating_add(u128::from(rest));
    for _ in 0..shift.max(0) {
        if nanos == 0 || nanos == u128::MAX {
            break;
        }
        nanos = nanos.saturating_mul(10);
    }
    nanos
}

fn binary_nanos(parts: &Parts<'_>, exponent: u32) -> u128 {
    if parts.fraction.is_empty() {
        let units = decimal_nanos(parts.digits(), parts.digit_count(), 0);
        return units
            .saturating_mul(2_u128.saturating_pow(exponent))
            .saturating_mul(NANOS_PER_UNIT.unsigned_abs());
    }
    // Fractions of a power of two need more digits than any fixed width has: multiply in decimal.
    let mut digits: Vec<u8> = parts.digits().collect();
    for _ in 0..exponent / 10 {
        multiply(&mut digits, 1024);
    }
    decimal_nanos(digits.iter().copied(), digits.len(), parts.shift(0))
}

/// Multiplies a number given by its decimal digits, most significant first.
fn multiply(digits: &mut Vec<u8>, factor: u32) {
    let mut carry = 0_u32;
    for digit in digits.iter_mut().rev() {
        let product = u32::from(*digit).saturating_mul(factor).saturating_add(carry);
        *digit = u8::try_from(product % 10).unwrap_or(0);
        carry = product / 10;
    }
    while carry > 0 {
        digits.insert(0, u8::try_from(carry % 10).unwrap_or(0));
        carry /= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_read_in_linear_time_and_saturates() {
        let digits = "9".repeat(100_000);
        assert_eq!(Quantity::parse(&digits).unwrap().value(), i64::MAX);
        assert_eq!(Quantity::parse(&format!("0.{digits}Ei")).unwrap().value(), 1 << 60);
        assert_eq!(
            Quantity::parse(&format!("-{digits}e2147483647")).unwrap().value(),
            i64::MIN
        );
    }

    #[test]
    fn the_error_says_what_is_wrong() {
        assert_eq!(Quantity::parse("").unwrap_err(), ParseError::Format);
        assert_eq!(Quantity::parse("1 Gi").unwrap_err(), ParseError::Format);
        assert_eq!(Quantity::parse("1gi").unwrap_err(), ParseError::Format);
        assert_eq!(Quantity::parse("1KiB").unwrap_err(), ParseError::Format);
        assert_eq!(Quantity::parse("1iK").unwrap_err(), ParseError::Suffix);
        assert_eq!(Quantity::parse(".0e-10").unwrap(), Quantity::ZERO);
        assert_eq!(Quantity::parse(".e-10").unwrap_err(), ParseError::Numeric);
    }
}
