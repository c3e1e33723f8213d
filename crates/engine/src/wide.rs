//! Fractions that compare exactly.

use std::cmp::Ordering;

/// A non-negative fraction or infinity, compared exactly: products of two 128-bit numbers are kept in 256 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// At least zero.
    over: u128,
    /// Zero: infinite, whatever `over` is.
    under: u128,
}

impl Share {
    pub(crate) const ZERO: Self = Self { over: 0, under: 1 };
    pub(crate) const INFINITE: Self = Self { over: 1, under: 0 };

    /// `over / under`; nothing over anything is zero, anything over nothing is infinite.
    pub(crate) fn new(over: u128, under: u128) -> Self {
        match (over, under) {
            (0, _) => Self::ZERO,
            (_, 0) => Self::INFINITE,
            _ => Self { over, under },
        }
    }

    pub(crate) fn is_infinite(self) -> bool {
        self.under == 0
    }

    /// In thousandths, rounded up; the largest number when infinite: what a status shows.
    pub(crate) fn in_thousandths(self) -> i64 {
        if self.is_infinite() {
            return i64::MAX;
        }
        let (whole, rest) = (self.over / self.under, self.over % self.under);
        let part = rest.saturating_mul(1000).div_ceil(self.under);
        let sum = whole.saturating_mul(1000).saturating_add(part);
        i64::try_from(sum).unwrap_or(i64::MAX)
    }
}

impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Share {}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_infinite(), other.is_infinite()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => product(self.over, other.under).cmp(&product(other.over, self.under)),
        }
    }
}

/// The product of two numbers: its upper and lower 128 bits.
fn product(one: u128, other: u128) -> (u128, u128) {
    const LOW: u128 = u64::MAX as u128;
    let (a, b) = (one >> 64, one & LOW);
    let (c, d) = (other >> 64, other & LOW);
    let (high, low) = (a.wrapping_mul(c), b.wrapping_mul(d));
    let (left, right) = (a.wrapping_mul(d), b.wrapping_mul(c));
    let middle = (low >> 64).wrapping_add(left & LOW).wrapping_add(right & LOW);
    let carried = (left >> 64).wrapping_add(right >> 64).wrapping_add(middle >> 64);
    (high.wrapping_add(carried), (middle << 64) | (low & LOW))
}

/// A sum of products over a weight, or infinity, compared exactly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weighted {
    /// The sum's upper and lower 128 bits.
    sum: (u128, u128),
    /// Zero: infinite, whatever the sum is.
    weight: u64,
}

impl Weighted {
    pub(crate) fn nothing_over(weight: u64) -> Self {
        Self { sum: (0, 0), weight }
    }

    /// Adds a product to the sum.
    pub(crate) fn add_product(&mut self, one: u128, other: u128) {
        let (high, low) = product(one, other);
        let (sum, carry) = self.sum.1.overflowing_add(low);
        self.sum = (self.sum.0.saturating_add(high).saturating_add(u128::from(carry)), sum);
    }

    /// The sum times a factor, highest digit first.
    fn times(self, factor: u64) -> [u128; 3] {
        let ((top, high), (carry, low)) = (product(self.sum.0, factor.into()), product(self.sum.1, factor.into()));
        let (middle, over) = high.overflowing_add(carry);
        [top + u128::from(over), middle, low]
    }
}

impl Ord for Weighted {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.weight, other.weight) {
            (0, 0) => Ordering::Equal,
            (0, _) => Ordering::Greater,
            (_, 0) => Ordering::Less,
            _ => self.times(other.weight).cmp(&other.times(self.weight)),
        }
    }
}

impl PartialOrd for Weighted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Weighted {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Weighted {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_that_differ_in_the_last_bit_differ() {
        let big = u128::MAX / 3;
        assert!(Share::new(big, big + 1) < Share::new(big + 1, big + 2));
        assert_eq!(Share::new(big, big), Share::new(1, 1));
        assert_eq!(product(u128::MAX, u128::MAX), (u128::MAX - 1, 1));
    }

    #[test]
    fn unequal_shares_and_sums_are_not_equal() {
        assert_ne!(Share::new(1, 3), Share::new(1, 2));
        assert_ne!(Share::new(1, 3), Share::INFINITE);
        let mut one = Weighted::nothing_over(3);
        one.add_product(1, 1);
        assert_ne!(one, Weighted::nothing_over(3));
    }

    #[test]
    fn something_over_nothing_is_infinite_and_nothing_is_zero() {
        assert!(Share::new(3, 0).is_infinite());
        assert_eq!(Share::new(0, 0), Share::ZERO);
        assert_eq!(Share::new(1, 0), Share::new(9, 0));
        assert!(Share::new(u128::MAX, 1) < Share::INFINITE);
        assert_eq!(Share::new(1, 3).in_thousandths(), 334);
        assert_eq!(Share::INFINITE.in_thousandths(), i64::MAX);
    }

    #[test]
    fn weighted_sums_compare_to_the_last_bit() {
        let of = |products: &[(u128, u128)], weight| {
            let mut sum = Weighted::nothing_over(weight);
            for (one, other) in products {
                sum.add_product(*one, *other);
            }
            sum
        };
        let big = u128::MAX >> 30;
        assert!(of(&[(big, 7), (1, 1)], 5) > of(&[(big, 7)], 5));
        assert_eq!(of(&[(big, 6)], 6), of(&[(big, 1)], 1));
        assert!(of(&[(big, 6), (1, 1)], 6) > of(&[(big, 1)], 1));
        assert!(of(&[(u128::MAX, u128::MAX)], u64::MAX) < of(&[(u128::MAX, u128::MAX)], u64::MAX - 1));
        // The carry from one half to the other.
        assert_eq!(of(&[(u128::MAX, 1), (1, 1)], 1), of(&[(1 << 64, 1 << 64)], 1));
        assert_eq!(of(&[], 0), of(&[(3, 4)], 0));
        assert!(of(&[], 0) > of(&[(u128::MAX, u128::MAX)], 1));
    }
}
