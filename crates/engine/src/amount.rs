//! Amounts of a resource.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An amount of one resource, counted in the smallest unit the engine knows of it.
///
/// The unit is thousandths for `cpu` and whole units for everything else (bytes, devices, pods). An amount is
/// never negative and arithmetic on it saturates: a sum that would not fit is [`Amount::MAX`], which no smaller
/// quota holds. Inside the engine sums of amounts are kept wider than this type, so that taking away what was
/// added always leads back to the same number; only what is reported saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "i64")]
pub struct Amount(i64);

impl From<i64> for Amount {
    /// See [`Amount::new`].
    fn from(units: i64) -> Self {
        Self::new(units)
    }
}

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The largest amount: what every larger quantity saturates to.
    pub const MAX: Self = Self(i64::MAX);

    /// An amount of `units`; a negative number counts as zero, so that no request can lower a sum.
    pub const fn new(units: i64) -> Self {
        Self(if units < 0 { 0 } else { units })
    }

    /// The number of smallest units.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Whether this is nothing at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, at most [`Amount::MAX`].
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left after taking `other` away, at least zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self::new(self.0.saturating_sub(other.0))
    }

    /// `times` of this amount, at most [`Amount::MAX`]; a negative count is none.
    #[must_use]
    pub const fn saturating_mul(self, times: i64) -> Self {
        Self::new(self.0.saturating_mul(if times < 0 { 0 } else { times }))
    }

    /// The amount nearest to a wide sum.
    pub(crate) fn from_wide(sum: i128) -> Self {
        Self(i64::try_from(sum.max(0)).unwrap_or(i64::MAX))
    }

    /// The same number, wide enough for exact sums.
    pub(crate) fn wide(self) -> i128 {
        i128::from(self.0)
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Amount;

    #[test]
    fn an_amount_is_never_negative() {
        assert_eq!(Amount::new(-5), Amount::ZERO);
        assert_eq!(Amount::new(3).saturating_sub(Amount::new(7)), Amount::ZERO);
        assert_eq!(Amount::new(3).saturating_mul(-1), Amount::ZERO);
        assert_eq!(Amount::from_wide(-1), Amount::ZERO);
    }

    #[test]
    fn sums_and_products_stop_at_the_largest_amount() {
        assert_eq!(Amount::MAX.saturating_add(Amount::new(1)), Amount::MAX);
        assert_eq!(Amount::new(i64::MAX / 2).saturating_mul(3), Amount::MAX);
        assert_eq!(Amount::from_wide(i128::from(i64::MAX) + 1), Amount::MAX);
    }
}
