//! The value itself: an integer count of nano units, its order, its arithmetic and its roundings.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// Nano units in one unit: Kubernetes keeps nothing finer.
pub(crate) const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;

/// How a quantity is written: it follows the notation in which the quantity was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Powers of ten as letters: `n u m k M G T P E`.
    #[default]
    DecimalSi,
    /// Powers of 1024 as letters: `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// Powers of ten as exponents: `12e6`.
    DecimalExponent,
}

/// An amount of a resource, exact to a billionth of a unit.
///
/// Amounts beyond about 1.7e29 units saturate; nothing wraps. Equality, order and hash look at the amount alone:
/// `1000m` equals `1`, whichever way it is written.
#[derive(Clone, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
    /// The text as it was read, only when Kubernetes would print it unchanged although it is not the canonical form
    /// (`010Mi`), or when the amount saturated.
    text: Option<Box<str>>,
}

impl Quantity {
    /// No amount at all; prints as `0`.
    pub const ZERO: Self = Self {
        nanos: 0,
        format: Format::DecimalSi,
        text: None,
    };

    /// An amount of `milli` thousandths of a unit.
    pub fn from_milli(milli: i64) -> Self {
        Self::from_nanos(i128::from(milli).saturating_mul(NANOS_PER_MILLI), Format::DecimalSi)
    }

    /// The amount in whole units, rounded away from zero, saturating at the limits of `i64`.
    pub fn value(&self) -> i64 {
        round_away(self.nanos, NANOS_PER_UNIT)
    }

    /// The amount in thousandths of a unit, rounded away from zero, saturating at the limits of `i64`.
    pub fn milli_value(&self) -> i64 {
        round_away(self.nanos, NANOS_PER_MILLI)
    }

    /// The amount in billionths of a unit, exactly.
    pub fn nanos(&self) -> i128 {
        self.nanos
    }

    /// Whether the amount is exactly zero.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Whether the amount is below zero.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// The notation in which the amount prints.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The same amount, printed in another notation.
    #[must_use]
    pub fn with_format(&self, format: Format) -> Self {
        Self::from_nanos(self.nanos, format)
    }

    /// The sum, saturating. A zero takes over the notation of the other side, as in Kubernetes.
    #[must_use]
    pub fn saturating_add(&self, other: &Self) -> Self {
        Self::from_nanos(self.nanos.saturating_add(other.nanos), self.result_format(other))
    }

    /// The difference, saturating. A zero takes over the notation of the other side, as in Kubernetes.
    #[must_use]
    pub fn saturating_sub(&self, other: &Self) -> Self {
        Self::from_nanos(self.nanos.saturating_sub(other.nanos), self.result_format(other))
    }

    /// The amount taken `times` times, saturating.
    #[must_use]
    pub fn saturating_mul(&self, times: i64) -> Self {
        Self::from_nanos(self.nanos.saturating_mul(i128::from(times)), self.format)
    }

    fn result_format(&self, other: &Self) -> Format {
        if self.is_zero() { other.format } else { self.format }
    }

    /// Keeps the range symmetric, so that a negation can never overflow.
    pub(crate) fn from_nanos(nanos: i128, format: Format) -> Self {
        Self {
            nanos: nanos.max(-i128::MAX),
            format,
            text: None,
        }
    }

    pub(crate) fn with_text(mut self, text: &str) -> Self {
        self.text = Some(text.into());
        self
    }

    pub(crate) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }
}

impl From<i64> for Quantity {
    fn from(units: i64) -> Self {
        Self::from_nanos(i128::from(units).saturating_mul(NANOS_PER_UNIT), Format::DecimalSi)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

fn round_away(nanos: i128, unit: i128) -> i64 {
    let (Some(quotient), Some(rest)) = (nanos.checked_div(unit), nanos.checked_rem(unit)) else {
        return 0;
    };
    let rounded = if rest == 0 {
        quotient
    } else {
        quotient.saturating_add(nanos.signum())
    };
    let limit = if nanos < 0 { i64::MIN } else { i64::MAX };
    i64::try_from(rounded).unwrap_or(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        Quantity::parse(text).unwrap()
    }

    #[test]
    fn sums_and_products_saturate_instead_of_wrapping() {
        let huge = q("1e29");
        assert_eq!(huge.saturating_add(&huge).saturating_add(&huge).value(), i64::MAX);
        assert_eq!(huge.saturating_mul(i64::MAX).value(), i64::MAX);
        assert_eq!(huge.saturating_mul(i64::MIN).value(), i64::MIN);
        assert_eq!(
            huge.saturating_mul(-1)
                .saturating_sub(&huge)
                .saturating_sub(&huge)
                .milli_value(),
            i64::MIN
        );
    }

    #[test]
    fn a_saturated_amount_can_be_negated_and_printed() {
        let lowest = q("1e30").saturating_mul(i64::MIN);
        assert!(lowest.is_negative());
        assert_eq!(lowest.saturating_mul(-1), q("1e30"));
        assert_eq!(q(&lowest.to_string()), lowest);
    }

    #[test]
    fn arithmetic_keeps_the_notation_of_the_left_side_unless_it_is_zero() {
        assert_eq!(q("1Gi").saturating_add(&q("1024")).to_string(), "1048577Ki");
        assert_eq!(Quantity::ZERO.saturating_add(&q("1Gi")).to_string(), "1Gi");
        assert_eq!(q("300M").saturating_mul(2).to_string(), "600M");
        assert_eq!(q("1").saturating_sub(&q("100m")).to_string(), "900m");
    }

    #[test]
    fn equality_and_order_ignore_the_notation() {
        assert_eq!(q("1Ki"), q("1024"));
        assert_eq!(q("010Mi"), q("10Mi"));
        assert!(q("1.5Gi") > q("1G"));
        assert!(q("-1n") < Quantity::ZERO);
    }

    #[test]
    fn integers_convert_exactly() {
        assert_eq!(Quantity::from(i64::MAX).value(), i64::MAX);
        assert_eq!(Quantity::from(i64::MIN).value(), i64::MIN);
        assert_eq!(Quantity::from_milli(i64::MAX).milli_value(), i64::MAX);
        assert_eq!(Quantity::from_milli(1500).to_string(), "1500m");
    }
}
