//! The table in `golden.tsv`, written by Go's own `k8s.io/apimachinery` through `golden/main.go`.

use sluice_quantity::{ParseError, Quantity};

const TABLE: &str = include_str!("../golden.tsv");

/// Inputs that we print differently on purpose. Of the first two Go drops the suffix, and its text reads back as another
/// amount. The others are beyond all that we hold: they print as they were read.
const PRINTED_DIFFERENTLY: &[(&str, &str)] = &[
    ("1000E", "1000E"),
    ("1000000E", "1000000E"),
    ("1e100", "1e100"),
    ("1e1000", "1e1000"),
    ("1e2147483647", "1e2147483647"),
];

struct Row {
    input: String,
    outcome: Result<Printed, ParseError>,
}

struct Printed {
    text: String,
    value: i64,
    milli: i64,
    exact_value: i64,
    exact_milli: i64,
}

fn rows() -> impl Iterator<Item = Row> {
    TABLE.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let columns: Vec<_> = line.split('\t').collect();
        let number = |column: usize| columns[column].parse().unwrap();
        let outcome = match columns[1] {
            "format" => Err(ParseError::Format),
            "numeric" => Err(ParseError::Numeric),
            "suffix" => Err(ParseError::Suffix),
            _ => Ok(Printed {
                text: columns[2].to_owned(),
                value: number(3),
                milli: number(4),
                exact_value: number(5),
                exact_milli: number(6),
            }),
        };
        Row {
            input: serde_json::from_str(columns[0]).unwrap(),
            outcome,
        }
    })
}

fn valid() -> impl Iterator<Item = (String, Printed)> {
    rows().filter_map(|row| Some((row.input, row.outcome.ok()?)))
}

fn parse(input: &str) -> Quantity {
    Quantity::parse(input).unwrap_or_else(|error| panic!("{input:?}: {error}"))
}

#[test]
fn the_table_holds_hundreds_of_valid_and_invalid_inputs() {
    assert!(rows().count() >= 300);
    assert!(rows().filter(|row| row.outcome.is_err()).count() >= 50);
}

#[test]
fn exactly_the_inputs_that_kubernetes_refuses_are_refused_with_the_same_kind_of_error() {
    for row in rows() {
        let error = Quantity::parse(&row.input).err();
        assert_eq!(error, row.outcome.err(), "{:?}", row.input);
    }
}

#[test]
fn values_are_rounded_away_from_zero_and_saturate() {
    for (input, printed) in valid() {
        let quantity = parse(&input);
        assert_eq!(quantity.value(), printed.exact_value, "{input:?}");
        assert_eq!(quantity.milli_value(), printed.exact_milli, "{input:?}");
    }
}

#[test]
fn values_are_those_of_kubernetes_wherever_it_neither_wraps_nor_reads_a_negative_amount() {
    let mut equal = 0;
    for (input, printed) in valid() {
        let quantity = parse(&input);
        if !quantity.is_negative() && printed.exact_milli < i64::MAX {
            assert_eq!(
                (quantity.value(), quantity.milli_value()),
                (printed.value, printed.milli),
                "{input:?}"
            );
            equal += 1;
        }
    }
    assert!(equal > 250, "{equal}");
}

#[test]
fn texts_are_those_of_kubernetes_but_for_the_listed_inputs() {
    for (input, printed) in valid() {
        let ours = parse(&input).to_string();
        match PRINTED_DIFFERENTLY.iter().find(|(listed, _)| *listed == input) {
            Some((_, text)) => {
                assert_eq!(ours, *text, "{input:?}");
                assert_ne!(ours, printed.text, "{input:?} need not be listed");
            }
            None => assert_eq!(ours, printed.text, "{input:?}"),
        }
    }
}

#[test]
fn every_printed_text_reads_back_as_the_same_amount_and_prints_the_same_again() {
    for (input, _) in valid() {
        let quantity = parse(&input);
        let text = quantity.to_string();
        assert_eq!(parse(&text), quantity, "{input:?} printed {text:?}");
        assert_eq!(parse(&text).to_string(), text, "{input:?}");
    }
}
