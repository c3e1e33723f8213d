//! Amount to text, by the rules of Go's `Quantity.CanonicalizeBytes`.

use std::fmt;

use crate::amount::{Format, NANOS_PER_UNIT, Quantity};

const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.pad(text),
            None => f.pad(&self.canonical()),
        }
    }
}

impl Quantity {
    /// The printed form computed from the amount: no digit is lost, no fraction is written, the suffix is as large as
    /// that allows.
    pub(crate) fn canonical(&self) -> String {
        let nanos = self.nanos();
        if nanos == 0 {
            return "0".to_owned();
        }
        match self.format() {
            Format::BinarySi => binary(nanos).unwrap_or_else(|| decimal_si(nanos)),
            Format::DecimalSi => decimal_si(nanos),
            Format::DecimalExponent => decimal_exponent(nanos),
        }
    }
}

/// None when binary notation would lose something: parts of a unit, amounts between -1024 and 1024, and amounts that
/// Kubernetes would cap when it reads them back.
fn binary(nanos: i128) -> Option<String> {
    let units = nanos.checked_div(NANOS_PER_UNIT)?;
    if nanos.checked_rem(NANOS_PER_UNIT)? != 0 || units.unsigned_abs() < 1024 || i64::try_from(units).is_err() {
        return None;
    }
    let (number, power) = strip_factors(units, 1024, BINARY_SUFFIXES.len().saturating_sub(1));
    Some(format!("{number}{}", BINARY_SUFFIXES.get(power)?))
}

/// Unlike Go, which drops the suffix beyond `E` (`1000E` prints as `1` there), keeps the largest suffix there is.
fn decimal_si(nanos: i128) -> String {
    let (number, power) = strip_factors(nanos, 1000, DECIMAL_SUFFIXES.len().saturating_sub(1));
    format!("{number}{}", DECIMAL_SUFFIXES.get(power).copied().unwrap_or_default())
}

fn decimal_exponent(nanos: i128) -> String {
    let (number, power) = strip_factors(nanos, 1000, usize::MAX);
    let exponent = i64::try_from(power)
        .unwrap_or(i64::MAX)
        .saturating_mul(3)
        .saturating_sub(9);
    if exponent == 0 {
        number.to_string()
    } else {
        format!("{number}e{exponent}")
    }
}

/// Divides by `factor` as often as it leaves no rest, at most `limit` times.
fn strip_factors(mut number: i128, factor: i128, limit: usize) -> (i128, usize) {
    let mut power = 0_usize;
    while power < limit && number != 0 && number.checked_rem(factor) == Some(0) {
        number = number.checked_div(factor).unwrap_or(number);
        power = power.saturating_add(1);
    }
    (number, power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> String {
        Quantity::parse(text).unwrap().to_string()
    }

    #[test]
    fn the_largest_suffix_that_loses_nothing_is_chosen() {
        assert_eq!(printed("0.1m"), "100u");
        assert_eq!(printed("1.23Ki"), "1259520m");
        assert_eq!(printed("1.5e3"), "1500");
        assert_eq!(printed("2048Mi"), "2Gi");
        assert_eq!(printed("0.5Mi"), "512Ki");
        assert_eq!(printed("512.0Ki"), "512Ki");
    }

    #[test]
    fn an_amount_beyond_the_largest_suffix_keeps_its_value() {
        assert_eq!(printed("1000E"), "1000E");
        assert_eq!(printed("1000000E"), "1000000E");
    }

    #[test]
    fn a_binary_sum_beyond_the_cap_prints_in_decimal_and_reads_back_unchanged() {
        let sum = Quantity::parse("7Ei").unwrap().saturating_mul(1024);
        assert_eq!(Quantity::parse(&sum.to_string()).unwrap(), sum);
    }

    #[test]
    fn width_and_alignment_are_honoured() {
        assert_eq!(format!("{:>6}|", Quantity::parse("1Gi").unwrap()), "   1Gi|");
    }
}
