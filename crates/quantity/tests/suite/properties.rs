use std::cmp::Ordering;

use proptest::prelude::*;
use sluice_quantity::Quantity;

/// Suffix, and what it multiplies by: numerator and denominator.
const SUFFIXES: &[(&str, i128, i128)] = &[
    ("n", 1, 1_000_000_000),
    ("u", 1, 1_000_000),
    ("m", 1, 1000),
    ("", 1, 1),
    ("k", 1000, 1),
    ("M", 1_000_000, 1),
    ("G", 1_000_000_000, 1),
    ("T", 1_000_000_000_000, 1),
    ("e3", 1000, 1),
    ("E-3", 1, 1000),
    ("Ki", 1 << 10, 1),
    ("Mi", 1 << 20, 1),
    ("Gi", 1 << 30, 1),
    ("Ti", 1 << 40, 1),
];

/// An exact rational number: what a text means by the words of its grammar, computed without this crate.
#[derive(Clone, Copy, Debug)]
struct Rational {
    numerator: i128,
    denominator: i128,
}

impl Rational {
    fn cmp(self, other: Self) -> Ordering {
        (self.numerator * other.denominator).cmp(&(other.numerator * self.denominator))
    }

    /// The multiple of `1 / parts` next to the number, away from zero.
    fn in_parts(self, parts: i128) -> i128 {
        let scaled = self.numerator * parts;
        let (quotient, rest) = (scaled / self.denominator, scaled % self.denominator);
        if rest == 0 {
            quotient
        } else {
            quotient + scaled.signum()
        }
    }
}

/// A text and its meaning. No part is finer than a nano unit, so reading it rounds nothing.
fn quantity() -> impl Strategy<Value = (String, Rational)> {
    let digits = (0_i64..1_000_000, 0_usize..4, 0_i64..1000, any::<bool>());
    (digits, prop::sample::select(SUFFIXES)).prop_filter_map(
        "finer than nano",
        |((whole, places, fraction, minus), suffix)| {
            let (name, numerator, denominator) = suffix;
            let ten = 10_i128.pow(u32::try_from(places).ok()?);
            let fraction = i128::from(fraction) % ten;
            let mantissa = (i128::from(whole) * ten + fraction) * if minus { -1 } else { 1 };
            let exact = Rational {
                numerator: mantissa * numerator,
                denominator: ten * denominator,
            };
            let sign = if minus { "-" } else { "" };
            let point = if places == 0 {
                String::new()
            } else {
                format!(".{fraction:0places$}")
            };
            let is_exact = exact.numerator * 1_000_000_000 % exact.denominator == 0;
            is_exact.then(|| (format!("{sign}{whole}{point}{name}"), exact))
        },
    )
}

proptest! {
    #[test]
    fn values_are_the_exact_rational_rounded_away_from_zero((text, exact) in quantity()) {
        let quantity = Quantity::parse(&text).unwrap();
        prop_assert_eq!(i128::from(quantity.value()), exact.in_parts(1));
        prop_assert_eq!(i128::from(quantity.milli_value()), exact.in_parts(1000).clamp(i64::MIN.into(), i64::MAX.into()));
        prop_assert_eq!(quantity.is_zero(), exact.numerator == 0);
        prop_assert_eq!(quantity.is_negative(), exact.numerator < 0);
    }

    #[test]
    fn order_agrees_with_the_exact_rationals((a, exact_a) in quantity(), (b, exact_b) in quantity()) {
        let order = Quantity::parse(&a).unwrap().cmp(&Quantity::parse(&b).unwrap());
        prop_assert_eq!(order, exact_a.cmp(exact_b), "{} {}", a, b);
    }

    #[test]
    fn a_printed_quantity_reads_back_unchanged((text, _) in quantity()) {
        let quantity = Quantity::parse(&text).unwrap();
        let printed = quantity.to_string();
        let again = Quantity::parse(&printed).unwrap();
        prop_assert_eq!(&again, &quantity);
        prop_assert_eq!(again.to_string(), printed.clone());
        let json = serde_json::to_string(&quantity).unwrap();
        prop_assert_eq!(serde_json::from_str::<Quantity>(&json).unwrap(), quantity);
    }

    #[test]
    fn sums_and_differences_are_exact_and_undo_each_other((a, _) in quantity(), (b, _) in quantity()) {
        let (a, b) = (Quantity::parse(&a).unwrap(), Quantity::parse(&b).unwrap());
        let sum = a.saturating_add(&b);
        prop_assert_eq!(&sum.saturating_sub(&b), &a);
        prop_assert_eq!(&sum, &b.saturating_add(&a));
        prop_assert_eq!(Quantity::parse(&sum.to_string()).unwrap(), sum);
    }

    #[test]
    fn a_product_is_the_sum_of_its_parts((a, _) in quantity(), times in 0_i64..20) {
        let a = Quantity::parse(&a).unwrap();
        let sum = (0..times).fold(Quantity::ZERO, |sum, _| sum.saturating_add(&a));
        prop_assert_eq!(a.saturating_mul(times), sum);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "[-+0-9.eEinumkKMGTP ]{0,40}|\\PC{0,20}") {
        if let Ok(quantity) = Quantity::parse(&text) {
            prop_assert_eq!(&Quantity::parse(&quantity.to_string()).unwrap(), &quantity);
            prop_assert!(quantity.saturating_add(&quantity).saturating_mul(i64::MAX) >= quantity || quantity.is_negative());
        }
    }
}
